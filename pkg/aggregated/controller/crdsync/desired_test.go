// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestDesired(t *testing.T) {
	t.Parallel()
	main := crd(widgets, labelled, shortName)
	main.UID, main.ResourceVersion = "main", "77"
	main.Labels["team"] = "a"
	main.Annotations = map[string]string{
		apiextensionsv1.KubeAPIApprovedAnnotation:          "https://example.com/1",
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
		hostingv1alpha1.DeletionPolicyAnnotation:           hostingv1alpha1.DeletionPolicyKeep,
	}
	main.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "ns", Name: "converter"}},
		},
	}
	before := main.DeepCopy()
	current := crd(widgets)
	current.UID, current.ResourceVersion = "annex", "5"
	current.Labels = map[string]string{"stale": "x", "annex.dev/own": "y"}
	current.Annotations = map[string]string{"note": "kept", "controller-gen.kubebuilder.io/version": "v0"}

	got := desired(main, current)
	if got.UID != "annex" || got.ResourceVersion != "5" || len(got.Status.Conditions) != len(current.Status.Conditions) {
		t.Errorf("identity and status became those of the main cluster: %+v", got)
	}
	expect.Equal(t, map[string]string{"team": "a", "annex.dev/own": "y"}, got.Labels, "labels")
	expect.Equal(t, map[string]string{
		"note": "kept", apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1", "annex.dev/definition-uid": "main", "annex.dev/definition-from": "main",
	}, got.Annotations, "annotations")
	want := main.Spec.DeepCopy()
	want.Conversion.Webhook.ClientConfig.Service.Port = ptr.To[int32](443)
	expect.Equal(t, want, &got.Spec, "spec")
	expect.Equal(t, before, main, "the cached definition was changed")
	if !differs(current, got) || differs(got, desired(main, got)) {
		t.Error("what is as desired differs, or what is not does not")
	}
	if made := desired(main, nil); made.Name != widgets || made.UID != "" || !isFollower(made) || !differs(nil, made) {
		t.Errorf("a new one is %+v", made.ObjectMeta)
	}
}

func TestRouteOf(t *testing.T) {
	t.Parallel()
	annex := identity{publishedBy: "ns.annex", store: "1"}
	leads := func(by, store string) *apiService {
		made := local("v1")
		made.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "annex"}
		made.Labels = map[string]string{hostingv1alpha1.PublishedByLabel: by}
		made.Annotations = map[string]string{hostingv1alpha1.PublishedStoreAnnotation: store}
		return made
	}
	for name, tc := range map[string]struct {
		apiService *apiService
		want       route
	}{
		"none":       {nil, routeMain},
		"local":      {local("v1"), routeMain},
		"annex":      {leads("ns.annex", "1"), routeAnnex},
		"other data": {leads("ns.annex", "2"), routeDataReplaced},
		"another":    {leads("ns.other", "1"), routeForeign},
		"unlabelled": {leads("", ""), routeForeign},
	} {
		if got := annex.routeOf(tc.apiService); got != tc.want {
			t.Errorf("%s: route %d, want %d", name, got, tc.want)
		}
	}
}
