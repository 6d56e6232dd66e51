// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

// newRouter creates the router, which assigns each resource to its Store.
func newRouter(extra *ExtraConfig) (*routing.Router, error) {
	cached, err := cachedResources(extra.Etcd)
	if err != nil {
		return nil, err
	}
	return routing.New(routing.Config{
		Store:           extra.Store,
		HostedResources: extra.HostingInformers.Hosting().V1alpha1().HostedResources(),
		LiveHostedResource: func(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
			return extra.AnnexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		},
		Cached: cached,
		Packed: func(resource schema.GroupResource) bool {
			return resource == apiextensionsv1.Resource("customresourcedefinitions")
		},
		Layers: extra.StorageLayers,
	})
}

// cachedResources reports which resources have a watch cache.
func cachedResources(etcd genericoptions.EtcdOptions) (func(schema.GroupResource) bool, error) {
	sizes, err := genericoptions.ParseWatchCacheSizes(etcd.WatchCacheSizes)
	if err != nil {
		return nil, fmt.Errorf("--watch-cache-sizes: %w", err)
	}
	return func(resource schema.GroupResource) bool {
		size, found := sizes[resource]
		return etcd.EnableWatchCache && (!found || size > 0)
	}, nil
}

// startRouting starts the informers that routes are read from. Readiness waits for
// them: before, every custom resource would return that it has no Store.
func (c CompletedConfig) startRouting(hook genericapiserver.PostStartHookContext) error {
	c.extra.HostingInformers.StartWithContext(hook)
	cache.WaitFor(hook, "routes", c.router.HasSyncedChecker())
	return nil
}
