// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"path"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// warmUpTimeout bounds how long readiness waits for the watch caches of custom
	// resources, as upstream bounds it for compiled-in ones.
	warmUpTimeout  = time.Minute
	warmUpInterval = 20 * time.Millisecond
	// warmUpsAtOnce bounds how many caches are filled concurrently, for etcd and for
	// memory.
	warmUpsAtOnce = 8
)

// addWarmUp makes readiness wait until all custom resources can be listed and watched.
// Upstream fills a watch cache at the first request, and rejects requests meanwhile:
// clients that move here from another replica must not be rejected.
func (s *server) addWarmUp() error {
	if !s.store.Shared() {
		return nil // there is no other replica
	}
	definitions := s.chain.Definitions.Outlines()
	informer, lister := definitions.Informer(), definitions.Lister()
	return s.chain.AddPostStartHook("annex-warm-up", func(hook genericapiserver.PostStartHookContext) error {
		ctx, cancel := context.WithTimeout(hook, warmUpTimeout)
		defer cancel()
		started := time.Now()
		logger := klog.LoggerWithName(klog.FromContext(hook), "warm-up")
		if !cache.WaitFor(ctx, "definitions", informer.HasSyncedChecker()) {
			return nil
		}
		all, err := lister.List(labels.Everything())
		if err != nil {
			return err
		}
		warmUp(ctx, s.clients.rest(), all)
		if ctx.Err() != nil {
			logger.Info("Not all custom resources can be listed yet, becoming ready without them", "timeout", warmUpTimeout)
		}
		logger.V(2).Info("Custom resources can be listed and watched", "definitions", len(all), "duration", time.Since(started))
		return nil
	})
}

// warmUp returns when every served version of the definitions can be listed, or
// ctx is done.
func warmUp(ctx context.Context, annexREST restclient.Interface, definitions []*apiextensionsv1.CustomResourceDefinition) {
	var resources []string
	for _, definition := range definitions {
		if !apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
			continue
		}
		for _, version := range definition.Spec.Versions {
			if version.Served {
				resources = append(resources, path.Join("/apis", definition.Spec.Group, version.Name, definition.Spec.Names.Plural))
			}
		}
	}
	workqueue.ParallelizeUntil(ctx, warmUpsAtOnce, len(resources), func(i int) { waitListed(ctx, annexREST, resources[i]) })
}

// waitListed waits until the watch cache of a resource is ready, or cannot become so.
func waitListed(ctx context.Context, annexREST restclient.Interface, resource string) {
	// It fails only when ctx is done.
	_ = wait.PollUntilContextCancel(ctx, warmUpInterval, true, func(ctx context.Context) (bool, error) {
		err := annexREST.Get().AbsPath(resource).Param("resourceVersion", "0").Param("limit", "1").MaxRetries(0).Do(ctx).Error()
		return !apierrors.IsTooManyRequests(err) && (!apierrors.IsServiceUnavailable(err) || isOfStore(err)), nil
	})
}

// isOfStore reports whether a resource is not served because it has no Store or that is
// unavailable. Readiness waits for no Store except the default one.
func isOfStore(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Group == hostingv1alpha1.SchemeGroupVersion.Group
}
