// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// oneAway is the usage of two Stores, of which "away" was never reached.
type oneAway struct {
	controller.UsageTracker
	objects int64
}

func (o oneAway) Usage(schema.GroupResource) usage.Usage { return usage.Usage{Objects: o.objects} }

func (o oneAway) In(store string, _ schema.GroupResource) (in usage.Usage, known bool) {
	return usage.Usage{Objects: o.objects}, store != "away"
}

func TestStoredWithAStoreAway(t *testing.T) {
	t.Parallel()
	type answer struct {
		objects int64
		known   bool
	}
	for name, test := range map[string]struct {
		store   string
		objects int64
		want    answer
	}{
		"empty, in the other":       {"near", 0, answer{0, true}},
		"empty, in that one":        {"away", 0, answer{0, false}},
		"not placed":                {"", 0, answer{0, true}},
		"counted before it is seen": {"", 3, answer{3, true}},
		"some":                      {"near", 3, answer{3, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			err := indexer.Add(&hostingv1alpha1.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: widgets}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: test.store},
			})
			expect.NoError(t, err)
			objects, known := stored(hostinglisters.NewHostedResourceLister(indexer), oneAway{objects: test.objects})(schema.ParseGroupResource(widgets))
			if got := (answer{objects, known}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
