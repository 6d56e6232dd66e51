// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// Stored is an object with the JSON that etcd has, or is to have, without a resource version. Storage of Objects takes the
// result of creations and updates in this form, and, with its resource version in the metadata, the object as it is before
// updates and deletions.
type Stored struct {
	metav1.ObjectMeta
	Data []byte
}

var (
	_ runtime.Object = &Stored{}
	_ metav1.Object  = &Stored{}
)

// Stored returns an Object that is to be updated or deleted.
func (o *Object) Stored() (*Stored, error) {
	text, err := o.json()
	if err != nil {
		return nil, err
	}
	version, found := canonicaljson.Member(text, int(o.metadata.Start), "resourceVersion")
	if !found {
		return nil, fmt.Errorf("update an object of %s: it has no resource version", o.resource.Kind.Kind)
	}
	begin, end := int(version.Start)-len(`"resourceVersion":`), int(version.End)
	if text[end] == ',' {
		end++
	} else if text[begin-1] == ',' {
		begin--
	}
	stored := &Stored{Data: append([]byte(text[:begin]), text[end:]...)}
	stored.SetResourceVersion(o.GetResourceVersion())
	return stored, nil
}

// MarshalJSON implements json.Marshaler.
func (s *Stored) MarshalJSON() ([]byte, error) { return s.Data, nil }

// GetObjectKind implements runtime.Object.
func (*Stored) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. The data is never changed.
func (s *Stored) DeepCopyObject() runtime.Object {
	return &Stored{ObjectMeta: *s.DeepCopy(), Data: s.Data}
}
