// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// stored is storage of packed definitions, with the events that a test sends.
type stored struct {
	storage.Interface
	list   watchcache.PackedList
	events *watch.FakeWatcher
}

func (s *stored) GetList(_ context.Context, _ string, _ storage.ListOptions, out apiruntime.Object) error {
	*out.(*watchcache.PackedList) = s.list
	return nil
}

func (s *stored) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return s.events, nil
}

// pack returns a definition as the watch cache has it.
func pack(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, in schema.GroupVersion) *watchcache.Packed {
	t.Helper()
	codec := apiextensionsapiserver.Codecs.LegacyCodec(in)
	typed, err := watchcache.NewPacking(codec, func() apiruntime.Object { return &apiextensions.CustomResourceDefinition{} }, customresourcedefinition.GetAttrs)
	expect.NoError(t, err)
	internal := &apiextensions.CustomResourceDefinition{}
	expect.NoError(t, apiextensionsapiserver.Scheme.Convert(crd, internal, nil))
	var data bytes.Buffer
	expect.NoError(t, codec.Encode(internal, &data))
	packed, _, err := typed.Form().Codec.Decode(data.Bytes(), nil, &watchcache.Packed{})
	expect.NoError(t, err)
	packed.(*watchcache.Packed).SetResourceVersion(crd.ResourceVersion)
	return packed.(*watchcache.Packed)
}

func newCRD(name string) *apiextensionsv1.CustomResourceDefinition {
	crd := crds.New("example.com", name, "v1", "v2")
	crd.UID, crd.Generation, crd.ResourceVersion = "first", 1, "1"
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	return crd
}

func run(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) (*Informer, *stored) {
	s := &stored{events: watch.NewFake(), list: watchcache.PackedList{Items: []watchcache.Packed{*pack(t, crd, apiextensionsv1.SchemeGroupVersion)}}}
	s.list.ResourceVersion = crd.ResourceVersion
	i := NewInformer(s, "/")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); i.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-stopped })
	if !cache.WaitForCacheSync(ctx.Done(), i.Outlines().Informer().HasSynced) {
		t.Fatal("the informer is not synced")
	}
	return i, s
}

func withoutSchemas(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Schema = nil
	}
	return crd
}

func TestInformer(t *testing.T) {
	t.Parallel()
	crd := newCRD("widgets")
	i, s := run(t, crd)
	whole := i.Whole(nil).Lister()
	v1 := apiextensionsv1.SchemeGroupVersion
	before, err := whole.Get(crd.Name)
	expect.NoError(t, err)
	for _, step := range []struct {
		name string
		// change changes crd, and shared tells whether the schemas are the same objects afterwards.
		change func()
		shared bool
		stored schema.GroupVersion
	}{
		{"as listed", func() {}, true, v1},
		{"the status changes", func() { crd.Status.AcceptedNames = crd.Spec.Names }, true, v1},
		{"another server writes it", func() {}, true, apiextensionsv1beta1.SchemeGroupVersion},
		{"the spec changes", func() {
			crd.Generation++
			crd.Spec.Versions[1].Schema.OpenAPIV3Schema.Description = "changed"
		}, false, apiextensionsv1beta1.SchemeGroupVersion},
		{"it is created again", func() { crd.UID = "second" }, false, v1},
		{"a version loses its schema", func() {
			crd.Generation++
			crd.Spec.Versions[1].Schema = nil
		}, false, v1},
	} {
		step.change()
		crd.ResourceVersion += "0"
		s.events.Modify(pack(t, crd, step.stored))
		poll.Until(t, step.name, func() string {
			if found, err := i.Outlines().Lister().Get(crd.Name); err != nil || found.ResourceVersion != crd.ResourceVersion {
				return "the informer has not seen it"
			}
			return ""
		})
		outline, err := i.Outlines().Lister().Get(crd.Name)
		expect.NoError(t, err)
		expect.Equal(t, withoutSchemas(crd), outline, step.name+": the outline")
		after, err := whole.Get(crd.Name)
		expect.NoError(t, err)
		expect.Equal(t, crd, after, step.name+": the definition")
		if shared := after.Spec.Versions[0].Schema == before.Spec.Versions[0].Schema; shared != step.shared {
			t.Errorf("%s: the schemas are shared: %v, want %v", step.name, shared, step.shared)
		}
		before = after
	}
}

// TestEvents checks that events have schemas while these are in use, so that a consumer that holds
// a definition sees what has changed, and that nothing is decoded for an event.
func TestEvents(t *testing.T) {
	t.Parallel()
	crd := newCRD("widgets")
	i, s := run(t, crd)
	events := make(chan *apiextensionsv1.CustomResourceDefinition, 10)
	_, err := i.Whole(func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Labels["ignored"] == "" }).Informer().
		AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { events <- obj.(*apiextensionsv1.CustomResourceDefinition) },
			UpdateFunc: func(_, updated any) { events <- updated.(*apiextensionsv1.CustomResourceDefinition) },
		})
	expect.NoError(t, err)
	expect.Equal(t, withoutSchemas(crd), <-events, "nothing is in use")
	used, err := i.Whole(nil).Lister().Get(crd.Name)
	expect.NoError(t, err)
	crd.Status.AcceptedNames, crd.ResourceVersion = crd.Spec.Names, "2"
	s.events.Modify(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	expect.Equal(t, crd, <-events, "the schemas are in use")
	runtime.KeepAlive(used)
	crd.Generation, crd.ResourceVersion = 2, "3"
	s.events.Modify(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	expect.Equal(t, withoutSchemas(crd), <-events, "those of another generation are not")
	crd.Labels, crd.ResourceVersion = map[string]string{"ignored": "true"}, "4"
	s.events.Modify(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	crd.Labels, crd.ResourceVersion = nil, "5"
	s.events.Modify(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	expect.Equal(t, "5", (<-events).ResourceVersion, "the next event that is not filtered")
}

// TestCollected checks that unused schemas are forgotten.
func TestCollected(t *testing.T) {
	t.Parallel()
	crd := newCRD("widgets")
	i, s := run(t, crd)
	for version := range 3 {
		crd.Generation, crd.ResourceVersion = int64(version+2), "1"+crd.ResourceVersion
		s.events.Modify(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	}
	poll.Until(t, "outlines that were replaced are forgotten", func() string {
		runtime.GC()
		i.mu.Lock()
		defer i.mu.Unlock()
		if len(i.schemas) == 1 {
			return ""
		}
		return "there are schemas of several outlines"
	})
}

// TestInformerIsCollected checks that the outlines of an informer do not keep it.
func TestInformerIsCollected(t *testing.T) {
	t.Parallel()
	i := NewInformer(nil, "/")
	outline, err := i.outline(pack(t, newCRD("widgets"), apiextensionsv1.SchemeGroupVersion))
	expect.NoError(t, err)
	expect.NoError(t, i.outlines.GetStore().Add(outline))
	collected := weak.Make(i)
	poll.UntilDone(t, "the informer is collected", func() (bool, string) {
		runtime.GC()
		return collected.Value() == nil, "something keeps it"
	})
}

// TestEventsBeforeTheFirst checks that outlines that the informer does not have yet share schemas:
// if one is used, a later state is not taken for a change of the spec.
func TestEventsBeforeTheFirst(t *testing.T) {
	t.Parallel()
	crd := newCRD("widgets")
	i := NewInformer(nil, "/")
	first, err := i.outline(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	expect.NoError(t, err)
	crd.Status.AcceptedNames, crd.ResourceVersion = crd.Spec.Names, "2"
	second, err := i.outline(pack(t, crd, apiextensionsv1.SchemeGroupVersion))
	expect.NoError(t, err)
	used, err := i.WithSchemas(first)
	expect.NoError(t, err)
	expect.Equal(t, crd, i.ifInUse(second), "the schemas of the first are in use")
	runtime.KeepAlive(used)
}
