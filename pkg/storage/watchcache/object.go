// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// Resource describes a version of a custom resource.
type Resource struct {
	// Kind and ListKind are the kinds of an object and of a list.
	Kind, ListKind schema.GroupVersionKind
	// Attrs returns the labels and fields of a decoded object.
	Attrs storage.AttrFunc
	// selectable are the fields besides name and namespace. They are indexed.
	selectable []string
	// canonical returns the schema that recognises stored objects. It may be nil, or return nil.
	canonical func() *canonicalSchema

	shared sharedSets
	// empty has the JSON of an object without metadata.
	empty     *record
	emptyOnce sync.Once
}

// NewResource returns the version of kind of a definition.
func NewResource(definition *apiextensionsv1.CustomResourceDefinition, kind, listKind schema.GroupVersionKind, attrs storage.AttrFunc) *Resource {
	r := &Resource{
		Kind: kind, ListKind: listKind, Attrs: attrs,
		canonical: sync.OnceValue(func() *canonicalSchema { return newCanonicalSchema(definition, kind.Version) }),
	}
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == kind.Version {
			for _, field := range v.SelectableFields {
				r.selectable = append(r.selectable, strings.TrimPrefix(field.JSONPath, "."))
			}
		}
	}
	return r
}

// NewObject returns an empty Object.
func (r *Resource) NewObject() runtime.Object {
	r.emptyOnce.Do(func() {
		var err error
		decoded := r.newDecoded()
		decoded.Object["metadata"] = map[string]any{}
		if r.empty, err = r.encode(decoded, 0); err != nil {
			utilruntime.HandleError(err)
		}
	})
	return &Object{r.empty}
}

// NewList returns an empty List.
func (r *Resource) NewList() runtime.Object {
	list := &List{}
	list.SetGroupVersionKind(r.ListKind)
	return list
}

func (r *Resource) newDecoded() *unstructured.Unstructured {
	decoded := &unstructured.Unstructured{}
	decoded.SetGroupVersionKind(r.Kind)
	return decoded
}

// Object is an encoded custom resource. Copies share an immutable record, which is nil for the zero Object; setters
// replace it.
type Object struct{ *record }

type record struct {
	resource *Resource
	// text is the JSON. A Memory replaces it by an equal one that is compressed, or by a plain one.
	text atomic.Pointer[text]
	// key is the key in the watch cache, if the object is in one. Its last segment is the name.
	key string
	// metadata is the value of metadata in the JSON, and revision the resource version, or 0.
	metadata canonicaljson.Span
	revision uint64
	// labels and fields are shared by objects with equal ones. fields lacks the name.
	labels labels.Set
	fields fields.Set
	// length is the length of the JSON. ownSets counts the new sets of labels and fields.
	length  uint32
	ownSets uint8
	// spare is the number of bytes by which the JSON may grow in place. It is 0 once the object has its
	// resource version, and may be shared.
	spare uint8
	// generation is the generation of the Memory in which the object was stored. The Memory guards it.
	generation uint32
}

var (
	_ runtime.Object = &Object{}
	_ metav1.Object  = &Object{}
)

// encode returns the record of a decoded object, with room for a resource version that is longer by spare bytes.
func (r *Resource) encode(decoded *unstructured.Unstructured, spare uint8) (*record, error) {
	encoded, err := decoded.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s %s/%s: %w", r.Kind.Kind, decoded.GetNamespace(), decoded.GetName(), err)
	}
	encoded = append(make([]byte, 0, len(encoded)+int(spare)), encoded...)
	json := canonicaljson.StringOf(encoded)
	metadata, found := canonicaljson.Member(json, 0, "metadata")
	if !found {
		return nil, fmt.Errorf("encode %s: the object has no metadata", r.Kind.Kind)
	}
	var revision uint64
	if version, found := canonicaljson.Member(json, int(metadata.Start), "resourceVersion"); found {
		revision, _ = strconv.ParseUint(json[version.Start+1:version.End-1], 10, 64)
	}
	made, err := newRecord(r, json, metadata, revision, decoded)
	if err == nil {
		made.spare = spare
	}
	return made, err
}

// newRecord returns the record of an encoded object, with its metadata and its resource version,
// or 0. decoded needs only what Attrs reads.
func newRecord(resource *Resource, json string, metadata canonicaljson.Span, revision uint64, decoded *unstructured.Unstructured) (*record, error) {
	r := &record{resource: resource, metadata: metadata, revision: revision, length: uint32(len(json))}
	r.text.Store(&text{data: json})
	labelSet, fieldSet, err := resource.Attrs(decoded)
	if err != nil {
		return nil, fmt.Errorf("read the labels and fields of %s %s/%s: %w", resource.Kind.Kind, decoded.GetNamespace(), decoded.GetName(), err)
	}
	delete(fieldSet, nameField)
	var newLabels, newFields bool
	r.labels, newLabels = resource.shared.get(labelSet)
	sharedFields, newFields := resource.shared.get(labels.Set(fieldSet))
	r.fields = fields.Set(sharedFields)
	for _, own := range []bool{newLabels, newFields} {
		if own {
			r.ownSets++
		}
	}
	return r, nil
}

// JSON returns the encoded object, which ends with a newline. It must not be changed.
func (o *Object) JSON() ([]byte, error) {
	if o.record == nil {
		return nil, errors.New("encode an object: it is empty")
	}
	json, err := o.json()
	return canonicaljson.BytesOf(json), err
}

// Decode returns the decoded object. The caller may change it.
func (o *Object) Decode() (*unstructured.Unstructured, error) {
	decoded := &unstructured.Unstructured{}
	if o.record == nil {
		return decoded, nil
	}
	json, err := o.json()
	if err != nil {
		return nil, err
	}
	if err := decoded.UnmarshalJSON([]byte(json)); err != nil {
		return nil, fmt.Errorf("decode %s from the watch cache: %w", o.resource.Kind.Kind, err)
	}
	return decoded, nil
}

// CacheAttrs returns the labels and fields of an Object for the watch cache, without the name.
// It is a storage.AttrFunc.
func CacheAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	o, ok := obj.(*Object)
	if !ok || o.record == nil {
		return nil, nil, fmt.Errorf("read the labels and fields of a %T: it is not an encoded object", obj)
	}
	return o.labels, o.fields, nil
}

// Attrs returns the labels and all fields of an Object. It is a storage.AttrFunc.
func Attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	labelSet, cached, err := CacheAttrs(obj)
	if err != nil {
		return nil, nil, err
	}
	all := fields.Set{nameField: obj.(*Object).GetName()}
	maps.Copy(all, cached)
	return labelSet, all, nil
}

// DecodeMetadata returns the decoded metadata.
func (o *Object) DecodeMetadata() metav1.Object {
	meta := &metav1.ObjectMeta{}
	if o.record == nil {
		return meta
	}
	json, err := o.json()
	if err == nil {
		meta, err = decodeMeta(json[o.metadata.Start:o.metadata.End], o.labels)
	}
	if err != nil {
		// The codec of custom resources lets only valid metadata pass.
		utilruntime.HandleError(fmt.Errorf("decode the metadata of %s %s/%s: %w", o.resource.Kind.Kind, o.GetNamespace(), o.GetName(), err))
	}
	return meta
}

// edit changes the object.
func (o *Object) edit(change func(metav1.Object)) {
	if o.record == nil {
		return
	}
	var changed *record
	decoded, err := o.Decode()
	if err == nil {
		change(decoded)
		changed, err = o.resource.encode(decoded, 0)
	}
	o.replace(changed, err)
}

func (o *Object) replace(by *record, err error) {
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	o.record = by
}

// SetResourceVersion implements metav1.Object. It is called for each object that comes from etcd.
func (o *Object) SetResourceVersion(version string) {
	if o.record == nil || o.revision == 0 {
		o.edit(func(object metav1.Object) { object.SetResourceVersion(version) })
		return
	}
	o.replace(o.withVersion(version))
}

// withVersion returns a record with another resource version: itself, if nothing else refers to it.
func (r *record) withVersion(version string) (*record, error) {
	json, err := r.json()
	if err != nil {
		return nil, err
	}
	at, found := canonicaljson.Member(json, int(r.metadata.Start), "resourceVersion")
	if !found {
		return nil, fmt.Errorf("set the resource version of %s: the object has none", r.key)
	}
	if r.spare > 0 && len(version) > 0 && len(version) <= int(r.spare)+1 {
		r.setVersion(version, at)
		return r, nil
	}
	json = json[:at.Start] + `"` + version + `"` + json[at.End:]
	changed := &record{
		resource: r.resource, key: r.key, metadata: r.metadata, labels: r.labels, fields: r.fields, ownSets: r.ownSets, length: uint32(len(json)),
	}
	changed.metadata.End += uint32(len(json)) - r.length
	changed.text.Store(&text{data: json})
	changed.revision, _ = strconv.ParseUint(version, 10, 64)
	return changed, nil
}

// GetResourceVersion implements metav1.Object.
func (o *Object) GetResourceVersion() string {
	if o.record == nil || o.revision == 0 {
		return o.DecodeMetadata().GetResourceVersion()
	}
	return strconv.FormatUint(o.revision, 10)
}

// DeepCopyObject implements runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	if o.record != nil && o.spare > 0 {
		o.spare = 0 // from now on it is shared
	}
	return &Object{o.record}
}

// GetObjectKind implements runtime.Object. The kind cannot be changed.
func (o *Object) GetObjectKind() schema.ObjectKind {
	kind := &metav1.TypeMeta{}
	if o.record != nil {
		kind.SetGroupVersionKind(o.resource.Kind)
	}
	return kind
}
