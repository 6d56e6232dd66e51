// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// ByResource is the name of an index of InjectionProfiles: those with a resource as target.
const ByResource = "injectionResource"

// Indexers returns the indexers that an informer of InjectionProfiles needs for a Source.
func Indexers() cache.Indexers {
	return cache.Indexers{ByResource: func(obj any) ([]string, error) {
		profile, ok := obj.(*v1alpha1.InjectionProfile)
		if !ok {
			return nil, fmt.Errorf("index a %T: not an injection profile", obj)
		}
		var resources []string
		for _, target := range profile.Spec.Targets {
			resources = append(resources, target.Resource)
		}
		return resources, nil
	}}
}

// Source finds the profile of an object. It keeps decoded profiles, and the schemas of resources
// that are a target, until one of them changes.
type Source struct {
	// Profiles has the Indexers.
	Profiles cache.Indexer
	// Outlines get definitions whose schemas are not needed, and Definitions get whole ones.
	Outlines, Definitions crdlisters.CustomResourceDefinitionLister

	mu        sync.Mutex
	resources map[string]*resource
}

// resource has the decoded profiles and the schemas of a resource.
type resource struct {
	// The rest is made from these.
	profiles   []*v1alpha1.InjectionProfile
	uid        string
	generation int64

	targets []*Target
	schemas *Schemas
	// misfits has the error of each profile that cannot be injected.
	misfits map[string]error
}

// Object has the properties of an object that select a profile.
type Object struct {
	Resource            schema.GroupResource
	Namespace           string
	Labels, Annotations map[string]string
	// NamespaceLabels returns the labels of the namespace.
	NamespaceLabels func() (map[string]string, error)
}

// Injection is a decision: what to inject in an object.
type Injection struct {
	// Target is nil if no profile selects the object.
	Target *Target
	// Misfit is the reason for which the selected profile is not injected.
	Misfit  error
	schemas *Schemas
}

// HasProfiles reports whether a resource is the target of a profile.
func (s *Source) HasProfiles(of schema.GroupResource) bool {
	keys, err := s.Profiles.IndexKeys(ByResource, of.String())
	return err != nil || len(keys) > 0
}

// Find returns what to inject in an object. An error is one of the annotation of the object, as a
// field.Error, or of the server.
func (s *Source) Find(object Object) (Injection, error) {
	known, err := s.resource(object.Resource.String())
	if err != nil || known == nil {
		return Injection{}, err
	}
	inject, found := object.Annotations[v1alpha1.InjectAnnotation]
	switch {
	case found && inject != "true" && inject != "false":
		return Injection{}, field.NotSupported(annotationPath(v1alpha1.InjectAnnotation), inject, []string{"true", "false"})
	case inject == "false":
		return Injection{}, nil
	}
	for _, target := range known.targets {
		selected, err := target.selects(object, inject)
		if err != nil {
			return Injection{}, err
		}
		if !selected {
			continue
		}
		if misfit := known.misfits[target.Profile]; misfit != nil {
			return Injection{Misfit: fmt.Errorf("InjectionProfile %q is not injected: %w", target.Profile, misfit)}, nil
		}
		return Injection{Target: target, schemas: known.schemas}, nil
	}
	return Injection{}, nil
}

// resource returns what is known of a resource, nil without profiles.
func (s *Source) resource(name string) (*resource, error) {
	objects, err := s.Profiles.ByIndex(ByResource, name)
	if err != nil {
		return nil, fmt.Errorf("find the injection profiles of %s: %w", name, err)
	}
	var profiles []*v1alpha1.InjectionProfile
	for _, object := range objects {
		profiles = append(profiles, object.(*v1alpha1.InjectionProfile))
	}
	slices.SortFunc(profiles, func(a, b *v1alpha1.InjectionProfile) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), strings.Compare(a.Name, b.Name))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(profiles) == 0 {
		delete(s.resources, name)
		return nil, nil
	}
	outline, err := definition(s.Outlines, name)
	if err != nil {
		return nil, err
	}
	known := s.resources[name]
	if known != nil && slices.Equal(known.profiles, profiles) && known.uid == string(outline.UID) && known.generation == outline.Generation {
		return known, nil
	}
	if known, err = s.read(name, profiles); err != nil {
		return nil, err
	}
	if s.resources == nil {
		s.resources = map[string]*resource{}
	}
	s.resources[name] = known
	return known, nil
}

// definition gets a definition, or one without versions if there is none: a webhook is called for
// resources that another server defines, and perhaps before its cache has a new definition. It then
// injects without comparing schemas.
func definition(definitions crdlisters.CustomResourceDefinitionLister, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	found, err := definitions.Get(name)
	if apierrors.IsNotFound(err) {
		return &apiextensionsv1.CustomResourceDefinition{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the definition of %s: %w", name, err)
	}
	return found, nil
}

// read decodes the profiles of a resource, and compares them with its schemas.
func (s *Source) read(name string, profiles []*v1alpha1.InjectionProfile) (*resource, error) {
	crd, err := definition(s.Definitions, name)
	if err != nil {
		return nil, err
	}
	known := &resource{profiles: profiles, uid: string(crd.UID), generation: crd.Generation, schemas: NewSchemas(crd), misfits: map[string]error{}}
	for _, profile := range profiles {
		for i := range profile.Spec.Targets {
			if profile.Spec.Targets[i].Resource != name {
				continue
			}
			target, err := NewTarget(profile, i)
			if err != nil {
				return nil, err
			}
			known.targets = append(known.targets, target)
			if errs := known.schemas.Fit(target); len(errs) > 0 {
				known.misfits[profile.Name] = errs.ToAggregate()
			}
		}
	}
	return known, nil
}

// Inject returns the object with what is to be injected, and an error of type field.ErrorList's
// aggregate if the object has other parts of these names, or would be invalid.
func (i Injection) Inject(ctx context.Context, version string, object, stored map[string]any) (map[string]any, error) {
	injected, err := Inject(ctx, i.Target, object, stored)
	if err != nil {
		return nil, err
	}
	if i.Target == nil || equality.Semantic.DeepEqual(injected, object) {
		return injected, nil
	}
	return injected, i.schemas.Invalidates(ctx, i.Target, version, injected, object, stored).ToAggregate()
}

// CheckProfile returns why a profile does not fit the definitions of its targets, and the targets
// that have no definition.
func CheckProfile(profile *v1alpha1.InjectionProfile, get func(name string) (*apiextensionsv1.CustomResourceDefinition, error)) (errs field.ErrorList, undefined []string, err error) {
	for i := range profile.Spec.Targets {
		name := profile.Spec.Targets[i].Resource
		crd, err := get(name)
		if apierrors.IsNotFound(err) {
			undefined = append(undefined, name)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("find the definition of %s: %w", name, err)
		}
		target, err := NewTarget(profile, i)
		if err != nil {
			return nil, nil, err
		}
		errs = append(errs, NewSchemas(crd).Fit(target)...)
	}
	return errs, undefined, nil
}
