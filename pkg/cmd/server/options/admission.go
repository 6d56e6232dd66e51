// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	upstreamadmission "k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/admission"
	"github.com/annex-dev/annex/pkg/admission/plugin/errorlimit"
	"github.com/annex-dev/annex/pkg/admission/plugin/sidecarinjection"
	"github.com/annex-dev/annex/pkg/admission/plugin/staticobjects"
	"github.com/annex-dev/annex/pkg/admission/plugin/storeaccess"
	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/apiserver"
)

// Admission configures the admission plugins.
type Admission struct {
	*genericoptions.AdmissionOptions

	// StoreEndpoints may be used in Stores without further permission.
	StoreEndpoints []string
}

// NewAdmission returns all plugins, in order.
func NewAdmission() *Admission {
	return &Admission{AdmissionOptions: &genericoptions.AdmissionOptions{
		Plugins:                admission.NewPlugins(),
		RecommendedPluginOrder: admission.Order(),
		DefaultOffPlugins:      sets.New[string](),
		// The last is the outermost: exempt requests are not counted.
		Decorators: upstreamadmission.Decorators{upstreamadmission.DecoratorFunc(admissionmetrics.WithControllerMetrics), admission.ExemptOwnWrites},
	}}
}

// AddFlags adds upstream's flags and annex's own.
func (o *Admission) AddFlags(fs *pflag.FlagSet) {
	o.AdmissionOptions.AddFlags(fs)
	fs.StringSliceVar(&o.StoreEndpoints, "store-endpoints", o.StoreEndpoints,
		"Endpoints that all users who may write Stores may use in them: HOST:PORT, where HOST is a DNS name, *.DOMAIN, an IP address "+
			"or a range such as 10.0.0.0/8, and PORT may be *; or unix:///PATH. Other hosts require the permission to use stores/endpoints. Other sockets are refused.")
}

// Validate checks the flags.
func (o *Admission) Validate() []error {
	errs := named("--enable-admission-plugins, --disable-admission-plugins", o.AdmissionOptions.Validate())
	if _, err := storeaccess.ParseEndpoints(o.StoreEndpoints); err != nil {
		errs = append(errs, fmt.Errorf("--store-endpoints: %w", err))
	}
	return errs
}

// RequireKinds turns off the plugins whose kinds the main cluster does not serve.
func (o *Admission) RequireKinds(ctx context.Context, main *maincluster.Cluster) error {
	var unserved sets.Set[string]
	err := main.Retry(ctx, func(ctx context.Context) error {
		var err error
		unserved, err = admission.Unserved(ctx, main.Kube.Discovery())
		return err
	})
	if err != nil {
		return err
	}
	return o.turnOff(ctx, unserved)
}

// turnOff turns off plugins until the next start. Waiting for kinds that an older main
// cluster does not serve would reject all writes.
func (o *Admission) turnOff(ctx context.Context, unserved sets.Set[string]) error {
	for _, plugin := range sets.List(unserved) {
		klog.FromContext(ctx).Info("Disabled an admission plugin because the main cluster does not serve its kinds", "plugin", plugin)
	}
	if asked := unserved.Intersection(sets.New(o.EnablePlugins...)); asked.Len() > 0 {
		return fmt.Errorf("--enable-admission-plugins: the main cluster does not serve what %s needs", strings.Join(sets.List(asked), ", "))
	}
	o.DefaultOffPlugins = unserved
	return nil
}

// Apply creates the plugins. generic must have its authorizer. The clients and informers are
// for the cluster that serves the Kubernetes kinds, annexMetadata for annex.
func (o *Admission) Apply(generic *genericapiserver.Config, sharedInformers informers.SharedInformerFactory, kubeClient kubernetes.Interface, dynamicClient dynamic.Interface, annexMetadata metadata.Interface, extra *apiserver.ExtraConfig) error {
	if err := admission.CheckConfigFile(o.ConfigFile); err != nil {
		return fmt.Errorf("--admission-control-config-file: %w", err)
	}
	endpoints, err := storeaccess.ParseEndpoints(o.StoreEndpoints)
	if err != nil {
		return fmt.Errorf("--store-endpoints: %w", err)
	}
	read := staticobjects.Reader(func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
		return annexMetadata.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	})
	sources, err := sidecarinjection.NewSources(extra.HostingInformers.Hosting().V1alpha1().InjectionProfiles())
	if err != nil {
		return err
	}
	limited := &errorlimit.Definitions{}
	extra.SetDefinitions = func(outlines, whole crdinformers.CustomResourceDefinitionInformer) {
		sources.SetDefinitions(outlines, whole)
		limited.Set(whole.Lister())
	}
	initializers := append(admission.Initializers(),
		webhookinitializer.NewPluginInitializer(extra.WebhookCredentials, extra.ServiceResolver),
		endpoints, admission.CompiledInGroups(apiserver.CompiledInGroups()), sources, limited, read)
	err = o.ApplyTo(generic, sharedInformers, kubeClient, dynamicClient, generic.FeatureGate, generic.EffectiveVersion, initializers...)
	if err != nil {
		return fmt.Errorf("--enable-admission-plugins, --disable-admission-plugins, --admission-control-config-file: %w", err)
	}
	return nil
}
