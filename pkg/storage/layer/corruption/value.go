// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
)

// Upstream treats every error of a transformer or decoder as a corrupt object, which may be
// deleted unsafely. The wrappers here undo that unless the value itself is damaged.

// Transformer marks the values that inner cannot decrypt or decompress.
func (d *Detector) Transformer(inner value.Transformer) value.Transformer {
	return transformer{Transformer: etcd3.WithCorruptObjErrorHandlingTransformer(inner), d: d}
}

type transformer struct {
	value.Transformer
	d *Detector
}

// TransformFromStorage implements value.Transformer.
func (t transformer) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, stale, err := t.Transformer.TransformFromStorage(ctx, data, dataCtx)
	if err == nil {
		return data, stale, nil
	}
	if isExternal(ctx, err) {
		return nil, stale, errors.Unwrap(err)
	}
	object := t.d.object(t.d.fromEtcd(string(dataCtx.AuthenticatedData())), "")
	return nil, stale, &damageError{resource: t.d.config.Resource, object: object.String(), cause: err}
}

// Codec distinguishes damaged values from failed conversions. It rejects objects of another
// kind, which upstream's codec of custom resources accepts.
func (d *Detector) Codec() runtime.Codec { return codec{Codec: d.config.Codec, d: d} }

type codec struct {
	runtime.Codec
	d *Detector
}

// Decode implements runtime.Decoder.
func (c codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.Codec.Decode(data, defaults, into)
	cause := err
	if custom, ok := object.(*unstructured.Unstructured); ok && err == nil {
		cause = c.d.check(custom.GroupVersionKind(), custom.GetName())
	} else if _, custom := c.d.config.New().(runtime.Unstructured); custom && err != nil {
		// The conversion webhook may have failed.
		cause = c.d.checkEncoded(data)
	}
	if cause != nil {
		err = &damageError{resource: c.d.config.Resource, cause: cause}
	}
	return object, kind, err
}

// checkEncoded returns the error of a stored custom resource, if it is damaged.
func (d *Detector) checkEncoded(data []byte) error {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	return d.check(object.GroupVersionKind(), object.Name)
}

func (d *Detector) check(kind schema.GroupVersionKind, name string) error {
	want := d.config.New().GetObjectKind().GroupVersionKind().Kind
	if want == "" {
		want = kind.Kind
	}
	if kind.Kind == "" || kind.Kind != want || kind.Group != d.config.Resource.Group {
		return fmt.Errorf("it is not an object of %s: its apiVersion is %q, its kind %q", d.config.Resource, kind.GroupVersion(), kind.Kind)
	}
	if name == "" {
		return errors.New("it has no name")
	}
	return nil
}

// Decoder marks damaged values. inner must decode with the Codec.
func (d *Detector) Decoder(inner etcd3.Decoder) etcd3.Decoder {
	return decoder{etcd3.WithCorruptObjErrorHandlingDecoder(inner)}
}

type decoder struct{ etcd3.Decoder }

// Decode implements etcd3.Decoder.
func (d decoder) Decode(value []byte, into runtime.Object, revision int64) error {
	return markDamaged(d.Decoder.Decode(value, into, revision))
}

// DecodeListItem implements etcd3.Decoder.
func (d decoder) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	object, err := d.Decoder.DecodeListItem(ctx, data, revision, newItem)
	return object, markDamaged(err)
}

func markDamaged(err error) error {
	var damage *damageError
	if err == nil || errors.As(err, &damage) {
		return err
	}
	return errors.Unwrap(err)
}
