// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd serves CustomResourceDefinitions: it has their informer, their limits and their discovery.
//
// Schemas are nearly all of the memory of a definition, and of the time to decode it, and few consumers need
// them. So the informer has outlines: definitions without schemas. These are decoded when a consumer of whole
// definitions gets one.
package crd

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// definition shortens the type's name.
type definition = apiextensionsv1.CustomResourceDefinition

// resyncPeriod is upstream's: its controllers check all definitions again.
const resyncPeriod = 5 * time.Minute

// ByGroup is the name of an index of the informer: the definitions of a group.
const ByGroup = "group"

// Informer has all definitions.
type Informer struct {
	// outlines have everything of a definition but the schemas of its versions.
	outlines cache.SharedIndexInformer

	mu sync.Mutex
	// schemas has the schemas of the outlines that are in use.
	schemas map[weak.Pointer[definition]]*schemas
	// latest has the newest outline of each name. The informer may not have it yet.
	latest map[string]weak.Pointer[definition]
}

// schemas has the schemas of a generation of a definition.
type schemas struct {
	// packed is the whole definition.
	packed *watchcache.Packed

	mu sync.Mutex
	// decoded has the schema of each version while it is in use.
	decoded []weak.Pointer[apiextensionsv1.CustomResourceValidation]
}

// NewInformer returns an informer of the packed definitions below a key. The caller runs it.
func NewInformer(packed storage.Interface, key string) *Informer {
	i := &Informer{schemas: map[weak.Pointer[definition]]*schemas{}, latest: map[string]weak.Pointer[definition]{}}
	i.outlines = cache.NewSharedIndexInformerWithOptions(newSource(packed, key, i.outline), &definition{}, cache.SharedIndexInformerOptions{
		ResyncPeriod: resyncPeriod, Indexers: Indexers(),
	})
	return i
}

// Indexers returns the indexers of the informer.
func Indexers() cache.Indexers {
	return cache.Indexers{ByGroup: func(obj any) ([]string, error) {
		crd, ok := obj.(*definition)
		if !ok {
			return nil, fmt.Errorf("index a %T: not a definition", obj)
		}
		return []string{crd.Spec.Group}, nil
	}}
}

// Run lists and watches the definitions until ctx is done.
func (i *Informer) Run(ctx context.Context) { i.outlines.RunWithContext(ctx) }

// Outlines returns the informer of definitions without schemas. A write of their status is as with
// schemas, because that ignores the spec; validation refuses a write of their spec.
func (i *Informer) Outlines() crdinformers.CustomResourceDefinitionInformer {
	return outlines{i.outlines}
}

type outlines struct{ informer cache.SharedIndexInformer }

// Informer implements crdinformers.CustomResourceDefinitionInformer.
func (o outlines) Informer() cache.SharedIndexInformer { return o.informer }

// Lister implements crdinformers.CustomResourceDefinitionInformer.
func (o outlines) Lister() crdlisters.CustomResourceDefinitionLister {
	return crdlisters.NewCustomResourceDefinitionLister(o.informer.GetIndexer())
}

// outline returns the outline of a definition. All states of a definition share the schemas until
// the generation changes, which changes with the spec.
func (i *Informer) outline(packed *watchcache.Packed) (*definition, error) {
	data, err := packed.Stored()
	if err != nil {
		return nil, err
	}
	if short, ok := watchcache.WithoutMember(data, []string{"spec", "versions"}, "schema"); ok {
		data = short
	}
	crd, err := decode(data, packed)
	if err != nil {
		return nil, err
	}
	for v := range crd.Spec.Versions {
		crd.Spec.Versions[v].Schema = nil
	}
	of := &schemas{packed: packed, decoded: make([]weak.Pointer[apiextensionsv1.CustomResourceValidation], len(crd.Spec.Versions))}
	key := weak.Make(crd)
	i.mu.Lock()
	defer i.mu.Unlock()
	if before := i.latest[crd.Name].Value(); before != nil && before.UID == crd.UID && before.Generation == crd.Generation {
		of = i.schemas[weak.Make(before)]
		crd.Spec = before.Spec
	}
	i.schemas[key], i.latest[crd.Name] = of, key
	// The cleanup must not keep the informer, which has the outline.
	name, informer := crd.Name, weak.Make(i)
	runtime.AddCleanup(crd, func(key weak.Pointer[definition]) {
		if i := informer.Value(); i != nil {
			i.forget(name, key)
		}
	}, key)
	return crd, nil
}

// forget drops the schemas of an outline that was garbage collected.
func (i *Informer) forget(name string, outline weak.Pointer[definition]) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.schemas, outline)
	if i.latest[name] == outline {
		delete(i.latest, name)
	}
}

var decoder = apiextensionsapiserver.Codecs.UniversalDecoder()

// decode decodes a stored definition, or a part of it. It may be stored in an older version, by
// another server.
func decode(data []byte, packed *watchcache.Packed) (*definition, error) {
	internal, crd := &apiextensions.CustomResourceDefinition{}, &definition{}
	if _, _, err := decoder.Decode(data, nil, internal); err != nil {
		return nil, fmt.Errorf("decode definition %s: %w", packed.Name, err)
	}
	if err := apiextensionsapiserver.Scheme.Convert(internal, crd, nil); err != nil {
		return nil, fmt.Errorf("convert definition %s: %w", packed.Name, err)
	}
	crd.ResourceVersion = packed.ResourceVersion
	return crd, nil
}

// WithSchemas returns the definition of an outline. Objects from elsewhere have their schemas.
func (i *Informer) WithSchemas(outline *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	of := i.schemasOf(outline)
	if of == nil {
		return outline, nil
	}
	decoded, err := of.get()
	if err != nil {
		return nil, err
	}
	return withSchemas(outline, decoded), nil
}

// ifInUse returns the definition of an outline if its schemas are in use, or else the outline.
func (i *Informer) ifInUse(outline *definition) *definition {
	if of := i.schemasOf(outline); of != nil {
		of.mu.Lock()
		defer of.mu.Unlock()
		if found, complete := of.inUse(); complete {
			return withSchemas(outline, found)
		}
	}
	return outline
}

func (i *Informer) schemasOf(outline *definition) *schemas {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.schemas[weak.Make(outline)]
}

func withSchemas(outline *definition, decoded []*apiextensionsv1.CustomResourceValidation) *definition {
	crd := *outline
	crd.Spec.Versions = slices.Clone(outline.Spec.Versions)
	for v := range crd.Spec.Versions {
		crd.Spec.Versions[v].Schema = decoded[v]
	}
	return &crd
}

// get returns the schema of each version. It decodes them unless all are in use.
func (s *schemas) get() ([]*apiextensionsv1.CustomResourceValidation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, complete := s.inUse()
	if complete {
		return found, nil
	}
	data, err := s.packed.Stored()
	if err != nil {
		return nil, err
	}
	crd, err := decode(data, s.packed)
	if err != nil {
		return nil, err
	}
	for v := range found {
		if found[v] = crd.Spec.Versions[v].Schema; found[v] == nil {
			s.decoded[v] = weak.Make(none)
			continue
		}
		s.decoded[v] = weak.Make(found[v])
	}
	return found, nil
}

// none stands for the schema of a version without one.
var none = &apiextensionsv1.CustomResourceValidation{}

// inUse returns the schemas that are in use, and whether these are all.
func (s *schemas) inUse() (found []*apiextensionsv1.CustomResourceValidation, complete bool) {
	found, complete = make([]*apiextensionsv1.CustomResourceValidation, len(s.decoded)), true
	for v := range found {
		found[v] = s.decoded[v].Value()
		complete = complete && found[v] != nil
		if found[v] == none {
			found[v] = nil
		}
	}
	return found, complete
}
