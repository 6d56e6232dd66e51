// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// verdict is what is known of a value that somebody failed to read.
type verdict int

const (
	// undecided is a value that could not be judged: what is needed to read it did
	// not answer.
	undecided verdict = iota
	// readable is a value that there is nothing wrong with now.
	readable
	// damaged is a value that cannot be read with what annex has.
	damaged
)

// judge says whether a value is damaged, and how.
func (q *Quarantine) judge(ctx context.Context, kv *mvccpb.KeyValue) (string, verdict) {
	data, _, err := q.config.Transformer.TransformFromStorage(ctx, kv.Value, keyContext(kv.Key))
	switch {
	case err == nil:
	case ctx.Err() != nil || fromElsewhere(err):
		return "", undecided
	default:
		return fmt.Sprintf("it cannot be decrypted or decompressed: %v", err), damaged
	}
	if err := q.decode(data); err != nil {
		return fmt.Sprintf("it cannot be decoded: %v", err), damaged
	}
	return "", readable
}

// keyContext binds a value to its key, as upstream's storage does.
type keyContext string

// AuthenticatedData implements value.Context.
func (k keyContext) AuthenticatedData() []byte { return []byte(k) }

// fromElsewhere reports whether an error is that of a service which was asked, for
// a key or a dictionary, and not about the value.
func fromElsewhere(err error) bool {
	if err == nil {
		return false
	}
	var ofEtcd rpctypes.EtcdError
	if errors.As(err, &ofEtcd) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if _, ok := status.FromError(err); ok {
		return true
	}
	// Aggregates cannot be unwrapped.
	if many, ok := err.(interface{ Errors() []error }); ok {
		for _, one := range many.Errors() {
			if fromElsewhere(one) {
				return true
			}
		}
	}
	return fromElsewhere(errors.Unwrap(err))
}

// decode looks whether data is an object. Those of definitions are not decoded
// for that in full: it may take a webhook, and one that fails says nothing about the
// value.
func (q *Quarantine) decode(data []byte) error {
	if _, custom := q.config.New().(runtime.Unstructured); !custom {
		_, err := runtime.Decode(q.config.Codec, data)
		return err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	return q.check(object.GroupVersionKind(), object.Name)
}

// check says what is wrong with the object of a definition, that is encoded as one.
func (q *Quarantine) check(kind schema.GroupVersionKind, name string) error {
	want := q.config.New().GetObjectKind().GroupVersionKind().Kind
	if want == "" {
		want = kind.Kind
	}
	if kind.Kind == "" || kind.Kind != want || kind.Group != q.config.Resource.Group {
		return fmt.Errorf("it is no object of %s: its apiVersion is %q, its kind %q", q.config.Resource, kind.GroupVersion(), kind.Kind)
	}
	if name == "" {
		return errors.New("it has no name")
	}
	return nil
}

// Codec refuses what is an object of another resource, which upstream's takes if it is
// of a version of the same group.
func (q *Quarantine) Codec(inner runtime.Codec) runtime.Codec { return codec{Codec: inner, q: q} }

type codec struct {
	runtime.Codec
	q *Quarantine
}

// Decode implements runtime.Decoder.
func (c codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.Codec.Decode(data, defaults, into)
	if err != nil && c.q.decode(data) == nil {
		c.q.unconverted.Add(1)
	}
	if custom, ok := object.(*unstructured.Unstructured); ok && err == nil {
		err = c.q.check(custom.GroupVersionKind(), custom.GetName())
	}
	return object, kind, err
}
