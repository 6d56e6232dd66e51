// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func testOpenAndClose(t *testing.T, standIn *maincluster.Cluster) {
	const group = "open.example.com"
	definition := newCopiedDefinition(group, "widgets", "v1", "v2")
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/convert")},
		},
	}
	f := newFixture(t, standIn, group, definition)
	before := expect.Get(t, f.main.CRDs(), definition.Name)
	served := f.objects(f.main, "widgets", "v1")
	create(t, served, f.newObject("Widget", "a", map[string]any{"size": "small"}))
	list, err := served.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	watching := startWatch(t, served, list.GetResourceVersion())

	resources := f.open(t)
	if got := resources["widgets"]; got.Stored.Version != "v1" || got.Kind != "Widget" || !got.Namespaced || got.Served != got.Stored {
		t.Errorf("resource: %+v", got)
	}
	waitEnd(t, watching)
	got, err := f.inMain("widgets").Get(t.Context(), "a", metav1.GetOptions{})
	expect.NoError(t, err)
	expect.Equal(t, group+"/"+hostingv1alpha1.MainCopyVersion, got.GetAPIVersion())
	opened := expect.Get(t, f.main.CRDs(), definition.Name)
	expect.Equal(t, apiextensionsv1.NoneConverter, opened.Spec.Conversion.Strategy)

	t.Log("a chart applies the definition without the version")
	reset := opened.DeepCopy()
	before.Spec.DeepCopyInto(&reset.Spec)
	expect.Update(t, f.main.CRDs(), reset)
	if open, err := f.copy.IsOpen(t.Context(), group); err != nil || open {
		t.Errorf("it is still open: %v, %v", open, err)
	}
	f.open(t)

	list, err = served.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	watching = startWatch(t, served, list.GetResourceVersion())
	for range 2 {
		expect.NoError(t, f.copy.Close(t.Context(), group))
	}
	waitEnd(t, watching)
	waitExpired(t, served, list.GetResourceVersion())
	closed := expect.Get(t, f.main.CRDs(), definition.Name)
	expect.Equal(t, before.Spec, closed.Spec)
	expect.Equal(t, before.Annotations, closed.Annotations)
	expect.Equal(t, []string{"v1"}, closed.Status.StoredVersions)
}

func testEndWatches(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "watches.example.com")
	before := expect.Get(t, f.main.CRDs(), "widgets."+f.group)
	for _, open := range []bool{false, true} {
		if open {
			f.open(t)
			before = expect.Get(t, f.main.CRDs(), "widgets."+f.group)
		}
		for range 5 {
			served := f.objects(f.main, "widgets", "v1")
			list, err := served.List(t.Context(), metav1.ListOptions{})
			expect.NoError(t, err)
			watching := startWatch(t, served, list.GetResourceVersion())
			expect.NoError(t, f.copy.EndWatches(t.Context(), f.group))
			waitEnd(t, watching)
			waitExpired(t, served, list.GetResourceVersion())
			expect.Equal(t, before.Spec, expect.Get(t, f.main.CRDs(), before.Name).Spec)
		}
	}
}

func startWatch(t *testing.T, objects dynamic.ResourceInterface, revision string) watch.Interface {
	t.Helper()
	watching, err := objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: revision})
	expect.NoError(t, err)
	t.Cleanup(watching.Stop)
	return watching
}

// waitEnd waits until the main cluster ends a watch.
func waitEnd(t *testing.T, watching watch.Interface) {
	t.Helper()
	poll.UntilDone(t, "the watch ends", func() (bool, string) {
		select {
		case event, open := <-watching.ResultChan():
			return !open, fmt.Sprint(event)
		default:
			return false, "nothing"
		}
	})
}

// waitExpired waits until a watch from before gets 410.
func waitExpired(t *testing.T, objects dynamic.ResourceInterface, revision string) {
	t.Helper()
	poll.UntilDone(t, "a watch from before gets 410", func() (bool, string) {
		watching, err := objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: revision, TimeoutSeconds: new(int64(5))})
		if err != nil {
			return apierrors.IsResourceExpired(err) || apierrors.IsGone(err), err.Error()
		}
		defer watching.Stop()
		event, open := <-watching.ResultChan()
		return open && event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object)), fmt.Sprint(event)
	})
}
