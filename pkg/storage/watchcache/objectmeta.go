// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// DecodeMetadata decodes the metadata of a JSON object in the form that is stored.
func DecodeMetadata(text []byte) (*metav1.ObjectMeta, error) {
	json := canonicaljson.StringOf(text)
	at, found := canonicaljson.Member(json, 0, "metadata")
	if !found {
		return nil, errors.New("decode metadata: the object has none")
	}
	return decodeMeta(json[at.Start:at.End], nil)
}

// decodeMeta decodes the metadata of an object. Garbage collectors, quotas and tables need them of each object, and
// encoding/json takes several times as long. labels are the labels of the object, if they are known.
func decodeMeta(text string, labels map[string]string) (*metav1.ObjectMeta, error) {
	r := &metaReader{Reader: canonicaljson.Reader{Text: text}, labels: labels}
	meta := r.meta()
	if !r.Failed {
		return meta, nil
	}
	meta = &metav1.ObjectMeta{}
	return meta, json.Unmarshal([]byte(text), meta)
}

// metaReader reads metadata.
type metaReader struct {
	canonicaljson.Reader
	// labels are the labels of the object, if they are known.
	labels map[string]string
	// last is the time that was read last, from lastTime: managed fields often have the same.
	last     time.Time
	lastTime string
}

func (r *metaReader) meta() *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{}
	r.Object(func(key string) {
		switch key {
		case "annotations":
			m.Annotations = r.StringMap()
		case "creationTimestamp":
			m.CreationTimestamp = ptr.Deref(r.time(), metav1.Time{})
		case "deletionGracePeriodSeconds":
			m.DeletionGracePeriodSeconds = new(r.Integer())
		case "deletionTimestamp":
			m.DeletionTimestamp = r.time()
		case "finalizers":
			r.Array(func() { m.Finalizers = append(m.Finalizers, r.String()) })
		case "generateName":
			m.GenerateName = r.String()
		case "generation":
			m.Generation = r.Integer()
		case "labels":
			if m.Labels = r.labels; m.Labels == nil {
				m.Labels = r.StringMap()
			} else {
				r.Value()
			}
		case "managedFields":
			r.Array(func() { m.ManagedFields = append(m.ManagedFields, r.managedFields()) })
		case "name":
			m.Name = r.String()
		case "namespace":
			m.Namespace = r.String()
		case "ownerReferences":
			r.Array(func() { m.OwnerReferences = append(m.OwnerReferences, r.ownerReference()) })
		case "resourceVersion":
			m.ResourceVersion = r.String()
		case "uid":
			m.UID = types.UID(r.String())
		default:
			r.Failed = true
		}
	})
	return m
}

func (r *metaReader) managedFields() (entry metav1.ManagedFieldsEntry) {
	r.Object(func(key string) {
		switch key {
		case "apiVersion":
			entry.APIVersion = r.String()
		case "fieldsType":
			entry.FieldsType = r.String()
		case "fieldsV1":
			entry.FieldsV1 = metav1.NewFieldsV1(r.Value())
		case "manager":
			entry.Manager = r.String()
		case "operation":
			entry.Operation = metav1.ManagedFieldsOperationType(r.String())
		case "subresource":
			entry.Subresource = r.String()
		case "time":
			entry.Time = r.time()
		default:
			r.Failed = true
		}
	})
	return entry
}

func (r *metaReader) ownerReference() (owner metav1.OwnerReference) {
	r.Object(func(key string) {
		switch key {
		case "apiVersion":
			owner.APIVersion = r.String()
		case "blockOwnerDeletion":
			owner.BlockOwnerDeletion = new(r.Boolean())
		case "controller":
			owner.Controller = new(r.Boolean())
		case "kind":
			owner.Kind = r.String()
		case "name":
			owner.Name = r.String()
		case "uid":
			owner.UID = types.UID(r.String())
		default:
			r.Failed = true
		}
	})
	return owner
}

// time returns nil for null.
func (r *metaReader) time() *metav1.Time {
	if r.At < len(r.Text) && r.Text[r.At] == 'n' {
		r.Value()
		return nil
	}
	text := r.String()
	if text == "" || text != r.lastTime {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			r.Failed = true
		}
		r.last, r.lastTime = parsed.Local(), text
	}
	return &metav1.Time{Time: r.last}
}
