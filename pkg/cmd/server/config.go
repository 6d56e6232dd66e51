// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/apiserver/heavywrites"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/corruption"
	"github.com/annex-dev/annex/pkg/storage/objectsize"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

// informerResync is how often informers of the Kubernetes kinds hand out again
// what they have, as kube-apiserver's do.
const informerResync = 10 * time.Minute

// newConfig applies the options to the chain's configuration, but for the etcd,
// which need not run yet. main is nil where annex stands alone. The order
// matters: what comes later uses what was applied before.
func newConfig(ctx context.Context, o options.CompletedOptions, caFile string, main *maincluster.Cluster) (*apiserver.Config, error) {
	generic := genericapiserver.NewConfig(scheme.Codecs)
	// The chain serves its own /metrics, with the embedded etcd's beside them.
	generic.EnableMetrics = false
	// One manager for all three servers, or discovery would know only one's groups.
	generic.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")

	if err := o.Generic.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("apply the generic flags: %w", err)
	}
	// annex leads clients away by itself, without losing requests; see drain.go.
	generic.ShutdownDelayDuration, generic.GoawayChance = 0, 0
	if err := o.Serving.ApplyToConfig(generic); err != nil {
		return nil, fmt.Errorf("apply the serving flags: %w", err)
	}
	generic.LoopbackClientConfig.ContentType = runtime.ContentTypeProtobuf
	generic.LoopbackClientConfig.DisableCompression = true
	generic.LoopbackClientConfig.Wrap(cancelledByStop(ctx))
	// Before clients are made, which have part in traces.
	if err := o.Traces.ApplyTo(ctx, generic); err != nil {
		return nil, err
	}
	kinds, err := newKubernetesCluster(generic, main)
	if err != nil {
		return nil, err
	}
	if err := o.Features.ApplyTo(generic, kinds.kube, kinds.informers); err != nil {
		return nil, fmt.Errorf("apply the feature flags: %w", err)
	}
	if err := o.Etcd.ApplyEncryption(generic); err != nil {
		return nil, err
	}
	annexHosting, err := newHostingClient(generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	budget := applyObjectSize(generic, o.Etcd)
	generic.Flagz = o.Flagz()
	apiserver.ConfigureOpenAPI(generic)
	config := &apiserver.Config{
		Generic: generic,
		Extra: apiserver.ExtraConfig{
			APIEnablement:    o.API.APIEnablementOptions,
			EventTTL:         o.API.EventTTL,
			Informers:        kinds.informers,
			Resources:        kinds.kube.Discovery(),
			AnnexHosting:     annexHosting,
			HostingInformers: annexinformers.NewSharedInformerFactory(annexHosting, informerResync),
			StorageLayers: routing.Layers{
				MaxObjectBytes:     o.Etcd.MaxObjectBytes.Value(),
				ObjectBudget:       budget,
				Compression:        compression.NewManager(),
				DefaultCompression: hostingv1alpha1.Compression(o.Etcd.Compression),
				Unreadable:         corruption.NewRegistry(),
			},
		},
	}
	if err := applyAuth(ctx, o, config, kinds, caFile, main); err != nil {
		return nil, err
	}
	if err := o.Audit.ApplyTo(generic); err != nil {
		return nil, err
	}
	if main != nil {
		return config, applyMain(ctx, o, config, main)
	}
	return config, o.Admission.ApplyOwnTo(generic, kinds.informers, kinds.kube, kinds.dynamic)
}

// newHostingClient makes a client of annex's own kinds, which have no protobuf
// encoding.
func newHostingClient(loopback *restclient.Config) (annexclient.Interface, error) {
	config := restclient.CopyConfig(loopback)
	config.ContentType = runtime.ContentTypeJSON
	annexHosting, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of annex's own kinds: %w", err)
	}
	return annexHosting, nil
}

// cancelledByStop has clients of annex itself say that a request was cancelled, and
// not that the connection was refused, where it fails because annex is told to stop:
// ctx is done then. Who logs it is known to have nothing to report.
func cancelledByStop(ctx context.Context) transport.WrapperFunc {
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

// kubernetesCluster is the cluster that has the Kubernetes kinds, annex itself or
// the main one. What decides on requests by these kinds reads them through it;
// the chain starts the informers.
type kubernetesCluster struct {
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	informers informers.SharedInformerFactory
}

func newKubernetesCluster(generic *genericapiserver.Config, main *maincluster.Cluster) (*kubernetesCluster, error) {
	if main != nil {
		return &kubernetesCluster{kube: main.Kube, dynamic: main.Dynamic, informers: main.Informers}, nil
	}
	annexClient, err := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes kinds: %w", err)
	}
	annexDynamicClient, err := dynamic.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("make a dynamic client: %w", err)
	}
	return &kubernetesCluster{
		kube:      annexClient,
		dynamic:   annexDynamicClient,
		informers: informers.NewSharedInformerFactory(annexClient, informerResync),
	}, nil
}

// applyMain has the chain do what the main cluster says, and leave to it what it
// serves itself.
func applyMain(ctx context.Context, o options.CompletedOptions, config *apiserver.Config, main *maincluster.Cluster) error {
	mainAPIs, err := main.APIs(o.Main.PublishService)
	if err != nil {
		return err
	}
	config.Extra.MainAPIs = mainAPIs
	config.Extra.ServiceResolver = main.ServiceResolver()
	config.Extra.WebhookCredentials = main.WebhookCredentials(config.Generic.TracerProvider)
	wrapFilters(config.Generic, o.Main.PublishService)
	return o.Admission.ApplyMainTo(ctx, config.Generic, main)
}

// heavyPatience is the part of a request's time that it may wait for others with
// large objects.
const heavyPatience = 2

// applyObjectSize has requests take objects of the size that flags allow, and no
// more of them at a time than there is memory for.
func applyObjectSize(generic *genericapiserver.Config, etcd *options.Etcd) *objectsize.Budget {
	limits := heavywrites.Limits{
		MaxBodyBytes: etcd.MaxBodyBytes(),
		Small:        func(group string) bool { return group != hosting.GroupName && scheme.Scheme.IsGroupRegistered(group) },
		Budget:       objectsize.NewBudget(etcd.MaxBodyBytes(), generic.RequestTimeout/heavyPatience),
		Timeout:      generic.RequestTimeout,
	}
	generic.MaxRequestBodyBytes = limits.MaxBodyBytes
	generic.JSONPatchMaxCopyBytes = etcd.MaxObjectBytes.Value()
	if generic.FlowControl != nil {
		generic.FlowControl = heavywrites.FlowControl(generic.FlowControl, limits)
	}
	filters := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, generic *genericapiserver.Config) http.Handler {
		return heavywrites.WithBodies(filters(heavywrites.WithLimits(handler, limits, generic.Serializer), generic), limits)
	}
	return limits.Budget
}

// wrapFilters has annex say in every answer who gave it, and in refusals whether
// the main cluster was asked in vain.
func wrapFilters(generic *genericapiserver.Config, service maincluster.Service) {
	publishedBy := hostingv1alpha1.PublishedBy(service.Namespace, service.Name)
	filters := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, generic *genericapiserver.Config) http.Handler {
		honest := maincluster.WithHonestRefusals(filters(handler, generic), generic.Serializer)
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(hostingv1alpha1.PublishedByHeader, publishedBy)
			honest.ServeHTTP(w, req)
		})
	}
}

// applyAuth makes annex recognise and authorize callers, by itself or as the main
// cluster says.
func applyAuth(ctx context.Context, o options.CompletedOptions, config *apiserver.Config, kinds *kubernetesCluster, caFile string, main *maincluster.Cluster) error {
	generic := config.Generic
	logins := options.Logins{OwnCAFile: caFile, TokenCacheTTL: o.Main.Login.TokenCacheTTL}
	if main != nil {
		var err error
		if logins.MainCluster, err = main.Authenticator(ctx, generic, o.Main.Login); err != nil {
			return err
		}
	} else if err := o.Tokens.ApplyTo(generic, &config.Extra, kinds.kube, kinds.informers, &logins); err != nil {
		return err
	}
	issuers, err := o.Authentication.ApplyTo(generic, logins)
	if err != nil {
		return err
	}
	config.Extra.Followers = append(config.Extra.Followers, issuers.Run)
	return applyRights(o, config, kinds, main)
}

// applyRights makes annex authorize callers.
func applyRights(o options.CompletedOptions, config *apiserver.Config, kinds *kubernetesCluster, main *maincluster.Cluster) error {
	if main != nil {
		delegated, err := main.Authorizer(o.Main.Reviews)
		if err != nil {
			return err
		}
		return o.Authorization.ApplyMainTo(config.Generic, delegated)
	}
	// Readiness waits for its informers, as for all.
	roles, err := rbac.New(kinds.informers.Rbac().V1())
	if err != nil {
		return fmt.Errorf("follow roles and bindings: %w", err)
	}
	rights, err := o.Authorization.ApplyTo(config.Generic, roles, o.Main.Reviews)
	if err != nil {
		return err
	}
	config.Extra.Followers = append(config.Extra.Followers, rights.Run)
	return nil
}
