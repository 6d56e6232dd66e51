// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
)

// Packing is for a compiled-in resource whose objects are large, and read rarely. Its watch cache has
// Packed objects, which are decoded for each list, and once for all watches of an event.
type Packing struct {
	codec     runtime.Codec
	newObject func() runtime.Object
	attrs     storage.AttrFunc
	// byMetadata is set if attrs needs only the metadata.
	byMetadata bool
}

// NewPacking returns the packing of a kind. codec decodes into newObject(); attrs returns labels and fields.
func NewPacking(codec runtime.Codec, newObject func() runtime.Object, attrs storage.AttrFunc) (*Packing, error) {
	_, known, err := attrs(newObject())
	if err != nil {
		return nil, fmt.Errorf("read the fields of a %T: %w", newObject(), err)
	}
	delete(known, nameField)
	delete(known, namespaceField)
	return &Packing{codec: codec, newObject: newObject, attrs: attrs, byMetadata: len(known) == 0}, nil
}

// Packed is an object as it is stored, compressed.
type Packed struct {
	// ObjectMeta has the name, the namespace, the UID and the resource version, and what the watch
	// cache sets in bookmarks.
	metav1.ObjectMeta
	*packed
}

// packed is shared by all copies of an object. It is immutable.
type packed struct {
	typed  *Packing
	stored *text
	labels labels.Set
	fields fields.Set
}

var (
	_ runtime.Object = &Packed{}
	_ metav1.Object  = &Packed{}
)

// PackedAttrs returns the labels and fields of a Packed. It is a storage.AttrFunc.
func PackedAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	p, ok := obj.(*Packed)
	if !ok || p.packed == nil {
		return nil, nil, fmt.Errorf("read the labels and fields of a %T: it is not a packed object", obj)
	}
	return p.labels, p.fields, nil
}

// GetObjectKind implements runtime.Object. The resource determines the kind.
func (p *Packed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (p *Packed) DeepCopyObject() runtime.Object {
	copied := &Packed{packed: p.packed}
	p.DeepCopyInto(&copied.ObjectMeta)
	return copied
}

// PackedList is a list of Packed.
type PackedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Packed `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *PackedList) DeepCopyObject() runtime.Object {
	copied := &PackedList{TypeMeta: l.TypeMeta, Items: make([]Packed, len(l.Items))}
	l.DeepCopyInto(&copied.ListMeta)
	for i := range l.Items {
		copied.Items[i] = *l.Items[i].DeepCopyObject().(*Packed)
	}
	return copied
}

// pack returns the object of stored data.
func (t *Packing) pack(data []byte) (*Packed, error) {
	object, err := t.partOf(data)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	p := &Packed{packed: &packed{typed: t}}
	p.Name, p.Namespace, p.UID = accessor.GetName(), accessor.GetNamespace(), accessor.GetUID()
	if p.labels, p.fields, err = t.attrs(object); err != nil {
		return nil, fmt.Errorf("read the labels and fields of %s: %w", p.Name, err)
	}
	if p.stored, err = newText(string(data), compression.Generic()); err != nil {
		return nil, fmt.Errorf("compress %s: %w", p.Name, err)
	}
	return p, nil
}

// partOf returns an object with what the watch cache needs: in most cases only its metadata.
func (t *Packing) partOf(data []byte) (runtime.Object, error) {
	found, ok := canonicaljson.Member(string(data), 0, "metadata")
	if !ok || !t.byMetadata || !json.Valid(data) {
		return runtime.Decode(t.codec, data) // the error, or another encoding
	}
	decoded, err := decodeMeta(string(data[found.Start:found.End]), nil)
	if err != nil {
		return nil, fmt.Errorf("decode the metadata: %w", err)
	}
	object := t.newObject()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetName(decoded.Name)
	accessor.SetNamespace(decoded.Namespace)
	accessor.SetUID(decoded.UID)
	accessor.SetLabels(decoded.Labels)
	return object, nil
}

// unpack decodes into an empty object. A bookmark has no data.
func (p *Packed) unpack(into runtime.Object) error {
	accessor, err := meta.Accessor(into)
	if err != nil {
		return err
	}
	if p.IsBookmark() {
		accessor.SetAnnotations(p.Annotations)
		accessor.SetResourceVersion(p.ResourceVersion)
		return nil
	}
	data, err := p.Stored()
	if err != nil {
		return err
	}
	if _, _, err := p.typed.codec.Decode(data, nil, into); err != nil {
		return fmt.Errorf("decode %s: %w", p.Name, err)
	}
	accessor.SetResourceVersion(p.ResourceVersion)
	return nil
}

// Form returns Packed objects as the form of a watch cache.
func (t *Packing) Form() Form {
	return Form{
		NewObject: func() runtime.Object { return &Packed{} }, NewList: func() runtime.Object { return &PackedList{} },
		Attrs: PackedAttrs, CacheAttrs: PackedAttrs, Codec: packingCodec{t.codec, t}, decode: t.unpack,
	}
}

// unpack returns the decoded object, or another object as it is.
func (t *Packing) unpack(kept runtime.Object) (runtime.Object, error) {
	found, ok := kept.(*Packed)
	if !ok {
		return kept, nil
	}
	object := t.newObject()
	return object, found.unpack(object)
}

type packingCodec struct {
	runtime.Codec
	typed *Packing
}

// Decode implements runtime.Decoder.
func (c packingCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, ok := into.(*Packed)
	if into != nil && !ok {
		return c.Codec.Decode(data, defaults, into)
	}
	decoded, err := c.typed.pack(data)
	if err != nil {
		return nil, nil, err
	}
	if object != nil {
		*object = *decoded
		decoded = object
	}
	return decoded, &schema.GroupVersionKind{}, nil
}

// Encode implements runtime.Encoder.
func (c packingCodec) Encode(obj runtime.Object, w io.Writer) error {
	if object, ok := obj.(*Packed); ok {
		obj = c.typed.newObject()
		if err := object.unpack(obj); err != nil {
			return err
		}
	}
	return c.Codec.Encode(obj, w)
}

// IsBookmark reports whether it is the object of a bookmark, which is not stored.
func (p *Packed) IsBookmark() bool { return p.packed == nil }

// Stored returns the object as it is stored, before conversion and defaulting.
func (p *Packed) Stored() ([]byte, error) {
	data := canonicaljson.BytesOf(p.stored.data)
	if p.stored.dictionary == nil {
		return data, nil
	}
	data, err := p.stored.dictionary.Decompress(nil, data)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", p.Name, err)
	}
	return data, nil
}

// WithoutMember removes a member from each object of an array. path leads to the array, through
// objects. encoding/json has written the JSON. It returns false if there is no such array.
func WithoutMember(data []byte, path []string, name string) ([]byte, bool) {
	text := canonicaljson.StringOf(data)
	at := canonicaljson.NewSpan(0, len(text))
	for _, key := range path {
		var found bool
		if at, found = canonicaljson.Member(text, int(at.Start), key); !found {
			return nil, false
		}
	}
	var result strings.Builder
	copied, items := 0, canonicaljson.Reader{Text: text, At: int(at.Start)}
	if !items.Next('[') {
		return nil, false
	}
	for items.At < int(at.End)-1 {
		if value, found := canonicaljson.Member(text, items.At, name); found {
			// The value goes with its name, and with one of the commas beside it.
			begin := int(value.Start) - len(name) - len(`"":`)
			end := int(value.End)
			switch {
			case text[begin-1] == ',':
				begin--
			case text[end] == ',':
				end++
			}
			result.WriteString(text[copied:begin])
			copied = end
		}
		items.Skip()
		items.Next(',')
	}
	result.WriteString(text[copied:])
	return []byte(result.String()), true
}
