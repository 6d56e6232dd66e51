// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func TestShareSpecs(t *testing.T) {
	t.Parallel()
	first := crds.New("example.com", "widgets", "v1")
	first.UID, first.Generation, first.ResourceVersion = "first", 1, "1"
	client := fake.NewClientset(first)
	factory := crdinformers.NewSharedInformerFactory(client, 0)
	informer := factory.Apiextensions().V1().CustomResourceDefinitions()
	expect.NoError(t, shareSpecs(informer.Informer()))
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())

	known := func() *apiextensionsv1.CustomResourceDefinition {
		found, err := informer.Lister().Get(first.Name)
		expect.NoError(t, err)
		return found
	}
	for _, step := range []struct {
		name   string
		change func(*apiextensionsv1.CustomResourceDefinition)
		shared bool
	}{
		{"status", func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Status.AcceptedNames = crd.Spec.Names }, true},
		{"spec", func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Generation++
			crd.Spec.Versions[0].Deprecated = true
		}, false},
		{"another CRD of the name", func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.UID = types.UID("second")
			crd.Spec.Versions[0].Deprecated = false
		}, false},
	} {
		before := known()
		changed := before.DeepCopy()
		step.change(changed)
		changed.ResourceVersion += "0"
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), changed, metav1.UpdateOptions{})
		expect.NoError(t, err)
		poll.Until(t, step.name+" has changed", func() string {
			if now := known(); now == before {
				return now.ResourceVersion
			}
			return ""
		})
		after := known()
		expect.Equal(t, changed.Spec, after.Spec, step.name)
		if shared := &after.Spec.Versions[0] == &before.Spec.Versions[0]; shared != step.shared {
			t.Errorf("%s: the spec is shared: %v, want %v", step.name, shared, step.shared)
		}
	}
}
