// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// decodeMeta decodes the metadata of an object. Garbage collectors, quotas and tables need them of each object, and
// encoding/json takes several times as long. labels are the labels of the object, if they are known.
func decodeMeta(text string, labels map[string]string) (*metav1.ObjectMeta, error) {
	r := &metaReader{reader: reader{text: text}, labels: labels}
	meta := r.meta()
	if !r.failed {
		return meta, nil
	}
	meta = &metav1.ObjectMeta{}
	return meta, json.Unmarshal([]byte(text), meta)
}

// metaReader reads metadata.
type metaReader struct {
	reader
	// labels are the labels of the object, if they are known.
	labels map[string]string
	// last is the time that was read last, from lastTime: managed fields often have the same.
	last     time.Time
	lastTime string
}

func (r *metaReader) meta() *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{}
	r.object(func(key string) {
		switch key {
		case "annotations":
			m.Annotations = r.stringMap()
		case "creationTimestamp":
			m.CreationTimestamp = ptr.Deref(r.time(), metav1.Time{})
		case "deletionGracePeriodSeconds":
			m.DeletionGracePeriodSeconds = ptr.To(r.integer())
		case "deletionTimestamp":
			m.DeletionTimestamp = r.time()
		case "finalizers":
			r.array(func() { m.Finalizers = append(m.Finalizers, r.string()) })
		case "generateName":
			m.GenerateName = r.string()
		case "generation":
			m.Generation = r.integer()
		case "labels":
			if m.Labels = r.labels; m.Labels == nil {
				m.Labels = r.stringMap()
			} else {
				r.value()
			}
		case "managedFields":
			r.array(func() { m.ManagedFields = append(m.ManagedFields, r.managedFields()) })
		case "name":
			m.Name = r.string()
		case "namespace":
			m.Namespace = r.string()
		case "ownerReferences":
			r.array(func() { m.OwnerReferences = append(m.OwnerReferences, r.ownerReference()) })
		case "resourceVersion":
			m.ResourceVersion = r.string()
		case "uid":
			m.UID = types.UID(r.string())
		default:
			r.failed = true
		}
	})
	return m
}

func (r *metaReader) managedFields() (entry metav1.ManagedFieldsEntry) {
	r.object(func(key string) {
		switch key {
		case "apiVersion":
			entry.APIVersion = r.string()
		case "fieldsType":
			entry.FieldsType = r.string()
		case "fieldsV1":
			entry.FieldsV1 = metav1.NewFieldsV1(r.value())
		case "manager":
			entry.Manager = r.string()
		case "operation":
			entry.Operation = metav1.ManagedFieldsOperationType(r.string())
		case "subresource":
			entry.Subresource = r.string()
		case "time":
			entry.Time = r.time()
		default:
			r.failed = true
		}
	})
	return entry
}

func (r *metaReader) ownerReference() (owner metav1.OwnerReference) {
	r.object(func(key string) {
		switch key {
		case "apiVersion":
			owner.APIVersion = r.string()
		case "blockOwnerDeletion":
			owner.BlockOwnerDeletion = ptr.To(r.boolean())
		case "controller":
			owner.Controller = ptr.To(r.boolean())
		case "kind":
			owner.Kind = r.string()
		case "name":
			owner.Name = r.string()
		case "uid":
			owner.UID = types.UID(r.string())
		default:
			r.failed = true
		}
	})
	return owner
}

// time returns nil for null.
func (r *metaReader) time() *metav1.Time {
	if r.at < len(r.text) && r.text[r.at] == 'n' {
		r.value()
		return nil
	}
	text := r.string()
	if text == "" || text != r.lastTime {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			r.failed = true
		}
		r.last, r.lastTime = parsed.Local(), text
	}
	return &metav1.Time{Time: r.last}
}
