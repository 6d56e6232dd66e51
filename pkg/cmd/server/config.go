// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	discoveryaggregated "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/transport"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/apiserver/requestbody"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// informerResync is the time after which informers deliver all objects again, as in kube-apiserver.
const informerResync = 10 * time.Minute

// newConfig applies the options to the chain's configuration, except for the etcd,
// which need not run yet, and creates the clients. The
// order matters: later steps use what earlier ones applied.
func newConfig(ctx context.Context, o options.CompletedOptions, mode mode, identity *identity) (*apiserver.Config, *clients, error) {
	generic := genericapiserver.NewConfig(scheme.Codecs)
	// The chain serves its own /metrics, which include the embedded etcd's.
	generic.EnableMetrics = false
	// The servers share one manager, or discovery would have only one server's groups.
	generic.AggregatedDiscoveryGroupManager = discoveryaggregated.NewResourceManager("apis")

	if err := o.Generic.ApplyTo(generic); err != nil {
		return nil, nil, fmt.Errorf("apply the generic flags: %w", err)
	}
	// drain.go moves clients to other replicas without losing requests instead.
	generic.ShutdownDelayDuration, generic.GoawayChance = 0, 0
	if err := o.Serving.ApplyToConfig(generic); err != nil {
		return nil, nil, fmt.Errorf("apply the serving flags: %w", err)
	}
	generic.LoopbackClientConfig.ContentType = runtime.ContentTypeProtobuf
	generic.LoopbackClientConfig.DisableCompression = true
	generic.LoopbackClientConfig.Wrap(canceledDuringShutdown(ctx))
	// Clients that are created from here on take part in traces.
	if err := o.Traces.ApplyTo(ctx, generic); err != nil {
		return nil, nil, err
	}
	config := &apiserver.Config{Generic: generic}
	own, err := newClients(generic.LoopbackClientConfig)
	if err != nil {
		return nil, nil, err
	}
	kinds := mode.kubernetes(own)
	own.kinds = kinds
	if err := o.Features.ApplyTo(generic, kinds.kube, kinds.informers); err != nil {
		return nil, nil, fmt.Errorf("apply the feature flags: %w", err)
	}
	if err := o.Etcd.ApplyEncryption(generic); err != nil {
		return nil, nil, err
	}
	cacheBudget, err := o.Etcd.CacheBudget()
	if err != nil {
		return nil, nil, err
	}
	bodies := newBodyLimits(generic, o.Etcd)
	generic.Flagz = o.Flagz()
	apiserver.ConfigureOpenAPI(generic)
	config.Extra = apiserver.ExtraConfig{
		APIEnablement:    o.API.APIEnablementOptions,
		EventTTL:         o.API.EventTTL,
		Informers:        kinds.informers,
		Resources:        kinds.kube.Discovery(),
		AnnexHosting:     own.hosting,
		HostingInformers: annexinformers.NewSharedInformerFactory(own.hosting, informerResync),
		BodyLimits:       bodies,
		AllMetricBuckets: o.Features.AllMetricBuckets,
		StorageLayers: routing.Layers{
			MaxObjectBytes:     o.Etcd.MaxObjectBytes.Value(),
			ObjectBudget:       bodies.Budget,
			Compression:        compression.NewManager(),
			DefaultCompression: hostingv1alpha1.Compression(o.Etcd.Compression),
			Unreadable:         corruption.NewRegistry(),
			Caches:             watchcache.NewBudget(cacheBudget),
		},
	}
	if err := mode.applyTo(ctx, o, config, kinds, identity); err != nil {
		return nil, nil, err
	}
	if err := o.Audit.ApplyTo(generic); err != nil {
		return nil, nil, err
	}
	return config, own, o.Admission.Apply(generic, kinds.informers, kinds.kube, kinds.dynamic, own.metadata, &config.Extra)
}

// canceledDuringShutdown makes loopback clients return context.Canceled after ctx is
// done, so that a connection refused during shutdown is not logged as a failure.
func canceledDuringShutdown(ctx context.Context) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("annex stops: %w", context.Canceled)
			}
			return response, err
		})
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// maxWaitFraction is the part of a request's timeout that it may wait for other
// requests with large bodies.
const maxWaitFraction = 2

// newBodyLimits limits request bodies to the object size that flags allow, and large
// ones to a memory budget.
func newBodyLimits(generic *genericapiserver.Config, etcd *options.Etcd) requestbody.BodyLimits {
	generic.MaxRequestBodyBytes = etcd.MaxBodyBytes()
	generic.JSONPatchMaxCopyBytes = etcd.MaxObjectBytes.Value()
	return requestbody.BodyLimits{
		MaxBodyBytes: etcd.MaxBodyBytes(),
		Small: func(group string) bool {
			return group != hostingv1alpha1.GroupName && scheme.Scheme.IsGroupRegistered(group)
		},
		Budget:  objectsize.NewBudget(etcd.MaxBodyBytes(), generic.RequestTimeout/maxWaitFraction),
		Timeout: generic.RequestTimeout,
	}
}
