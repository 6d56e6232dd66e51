// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sidecarinjection is the admission plugin that injects InjectionProfiles in custom resources, and
// refuses profiles that do not fit the definitions of their targets.
package sidecarinjection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/injection"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "SidecarInjection"

// Plugin injects InjectionProfiles.
type Plugin struct {
	*admission.Handler
	namespaces      namespace.Matcher
	namespaceSynced func() bool
	sources         *Sources
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
	_ initializer.WantsExternalKubeClientSet       = &Plugin{}
)

// New returns the plugin, which Sources must initialize.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// Sources are the profiles and the definitions that the plugin reads.
type Sources struct {
	profiles    cache.SharedIndexInformer
	definitions atomic.Pointer[definitions]
}

// definitions are known once the chain is built, after the plugins.
type definitions struct {
	synced cache.InformerSynced
	source *injection.Source
}

// NewSources returns the Sources with an informer that is not started yet.
func NewSources(profiles hostinginformers.InjectionProfileInformer) (*Sources, error) {
	informer := profiles.Informer()
	if err := informer.AddIndexers(injection.Indexers()); err != nil {
		return nil, fmt.Errorf("index the injection profiles: %w", err)
	}
	return &Sources{profiles: informer}, nil
}

// SetDefinitions sets the definitions without and with schemas. The plugin waits for them.
func (s *Sources) SetDefinitions(outlines, whole crdinformers.CustomResourceDefinitionInformer) {
	s.definitions.Store(&definitions{whole.Informer().HasSynced, &injection.Source{
		Profiles: s.profiles.GetIndexer(), Outlines: outlines.Lister(), Definitions: whole.Lister(),
	}})
}

func (s *Sources) synced() bool {
	known := s.definitions.Load()
	return known != nil && known.synced() && s.profiles.HasSynced()
}

var _ admission.PluginInitializer = &Sources{}

// Initialize implements admission.PluginInitializer.
func (s *Sources) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.sources = s
	}
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	namespaces := factory.Core().V1().Namespaces()
	p.namespaces.NamespaceLister, p.namespaceSynced = namespaces.Lister(), namespaces.Informer().HasSynced
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.namespaces.Client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.sources == nil {
		return errors.New("the injection profiles are missing")
	}
	p.SetReadyFunc(func() bool { return p.namespaceSynced() && p.sources.synced() })
	return p.namespaces.Validate()
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	if object, ok := attributes.GetObject().(*undecoded.Object); ok && attributes.GetSubresource() == "" {
		return p.admitUndecoded(attributes, object)
	}
	object, ok := attributes.GetObject().(*unstructured.Unstructured)
	if !ok || attributes.GetSubresource() != "" || object.GetDeletionTimestamp() != nil {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(attributes, errors.New("not yet ready to handle request"))
	}
	stored := map[string]any(nil)
	if old, ok := attributes.GetOldObject().(*unstructured.Unstructured); ok && old != nil {
		stored = old.Object
	}
	source, resource := p.sources.definitions.Load().source, attributes.GetResource().GroupResource()
	if !source.HasProfiles(resource) && !injection.IsInjected(object.Object) && !injection.IsInjected(stored) {
		return nil
	}
	kind, name := attributes.GetKind().GroupKind(), attributes.GetName()
	found, err := source.Find(injection.Object{
		Resource: resource, Namespace: attributes.GetNamespace(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
		NamespaceLabels: func() (map[string]string, error) { return p.namespaces.GetNamespaceLabels(attributes) },
	})
	if err != nil {
		return injection.StatusError(kind, name, err)
	}
	if found.Misfit != nil {
		warning.AddWarning(ctx, "", found.Misfit.Error())
	}
	injected, err := found.Inject(ctx, attributes.GetResource().Version, object.Object, stored)
	if err != nil {
		return injection.StatusError(kind, name, err)
	}
	object.Object = injected
	objects.GetObjectDefaulter().Default(object)
	return nil
}

// admitUndecoded marks an object that Admit may change.
func (p *Plugin) admitUndecoded(attributes admission.Attributes, object *undecoded.Object) error {
	if !p.WaitForReady() {
		return admission.NewForbidden(attributes, errors.New("not yet ready to handle request"))
	}
	_, injected := object.GetAnnotations()[v1alpha1.InjectedAnnotation]
	if old, ok := attributes.GetOldObject().(*undecoded.Object); ok && !injected {
		_, injected = old.GetAnnotations()[v1alpha1.InjectedAnnotation]
	}
	if injected || p.sources.definitions.Load().source.HasProfiles(attributes.GetResource().GroupResource()) {
		object.MarkMutating()
	}
	return nil
}

// Validate implements admission.ValidationInterface. It refuses a profile that does not fit a
// definition, unless the definition changed after the profile.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != v1alpha1.Resource("injectionprofiles") || attributes.GetSubresource() != "" {
		return nil
	}
	profile, ok := attributes.GetObject().(*v1alpha1.InjectionProfile)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("expected an InjectionProfile, got %T", attributes.GetObject()))
	}
	if old, ok := attributes.GetOldObject().(*v1alpha1.InjectionProfile); ok && equality.Semantic.DeepEqual(old.Spec, profile.Spec) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(attributes, errors.New("not yet ready to handle request"))
	}
	errs, undefined, err := injection.CheckProfile(profile, p.sources.definitions.Load().source.Definitions.Get)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	for _, name := range undefined {
		warning.AddWarning(ctx, "", fmt.Sprintf("there is no CustomResourceDefinition %s yet: whether the profile fits it is checked when there is", name))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(attributes.GetKind().GroupKind(), profile.Name, errs)
	}
	return nil
}
