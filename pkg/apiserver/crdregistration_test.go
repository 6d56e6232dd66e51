// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// registered replaces upstream's controller, which writes APIServices; it only records
// calls.
type registered struct {
	mu    sync.Mutex
	names sets.Set[string]
}

func (r *registered) AddAPIServiceToSyncOnStart(in *apiregistrationv1.APIService) {
	r.AddAPIServiceToSync(in)
}

func (r *registered) AddAPIServiceToSync(in *apiregistrationv1.APIService) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.Insert(in.Name)
}

func (r *registered) RemoveAPIServiceToSync(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.Delete(name)
}

func (r *registered) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sets.List(r.names)
}

func newCRD(plural, group string, served map[string]bool) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}
	crd.Spec.Group = group
	for version, isServed := range served {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: isServed})
	}
	return crd
}

func TestCRDRegistration(t *testing.T) {
	t.Parallel()
	first, second := newCRD("as", "x.com", map[string]bool{"v1": true, "v2": false}), newCRD("bs", "x.com", map[string]bool{"v1": true})
	annexClient := fake.NewClientset(first, second)
	informers := crdinformers.NewSharedInformerFactory(annexClient, 0)
	got := &registered{names: sets.New[string]()}
	expect.NoError(t, informers.Apiextensions().V1().CustomResourceDefinitions().Informer().AddIndexers(crd.Indexers()))
	registered, err := registerCRDs(informers.Apiextensions().V1().CustomResourceDefinitions(), got)
	expect.NoError(t, err)
	if registered() {
		t.Error("an initial sync is reported before the informers run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer informers.Shutdown()
	defer cancel()
	informers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registered) {
		t.Fatal("no initial sync")
	}
	expect.Equal(t, []string{"v1.x.com"}, got.list(), "after the initial sync")
	crds := annexClient.ApiextensionsV1().CustomResourceDefinitions()
	steps := []struct {
		name string
		do   func() error
		want []string
	}{
		{"a version is switched on", func() error {
			first = newCRD("as", "x.com", map[string]bool{"v1": true, "v2": true})
			_, err := crds.Update(ctx, first, metav1.UpdateOptions{})
			return err
		}, []string{"v1.x.com", "v2.x.com"}},
		{"a CRD is removed, another still serves v1", func() error { return crds.Delete(ctx, first.Name, metav1.DeleteOptions{}) }, []string{"v1.x.com"}},
		{"a version is renamed", func() error {
			_, err := crds.Update(ctx, newCRD("bs", "x.com", map[string]bool{"v3": true}), metav1.UpdateOptions{})
			return err
		}, []string{"v3.x.com"}},
		{"the last CRD is removed", func() error { return crds.Delete(ctx, second.Name, metav1.DeleteOptions{}) }, []string{}},
	}
	for _, step := range steps {
		expect.NoError(t, step.do(), "%s", step.name)
		poll.Until(t, "APIServices when "+step.name, func() string { return cmp.Diff(step.want, got.list()) })
	}
}
