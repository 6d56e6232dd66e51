// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// decodeMeta decodes the metadata of an encoded object. It is what garbage collectors, quotas
// and tables need of each object, and several times as fast as encoding/json, which decodes
// what it does not know. labels are those of the object, if they are known.
func decodeMeta(text string, labels map[string]string) (*metav1.ObjectMeta, error) {
	r := &reader{text: text, labels: labels}
	meta := r.meta()
	if !r.failed {
		return meta, nil
	}
	meta = &metav1.ObjectMeta{}
	return meta, json.Unmarshal([]byte(text), meta)
}

// reader reads JSON without white space. It fails at what it does not expect.
type reader struct {
	text   string
	at     int
	failed bool
	// labels are those of the metadata, if they are known.
	labels map[string]string
	// last is the time that was read last, from lastTime: managed fields often have the same.
	last     time.Time
	lastTime string
}

func (r *reader) meta() *metav1.ObjectMeta {
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

func (r *reader) managedFields() (entry metav1.ManagedFieldsEntry) {
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

func (r *reader) ownerReference() (owner metav1.OwnerReference) {
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

// next skips a character, if it is next.
func (r *reader) next(c byte) bool {
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *reader) expect(c byte) {
	if !r.next(c) {
		r.failed = true
	}
}

// object calls member at the value of each key. member must read the value.
func (r *reader) object(member func(key string)) {
	r.expect('{')
	for !r.failed && !r.next('}') {
		key := r.string()
		r.expect(':')
		if !r.failed {
			member(key)
		}
		if !r.next(',') && (r.at >= len(r.text) || r.text[r.at] != '}') {
			r.failed = true
		}
	}
}

// array calls item at each item. item must read it.
func (r *reader) array(item func()) {
	r.expect('[')
	for !r.failed && !r.next(']') {
		item()
		if !r.next(',') && (r.at >= len(r.text) || r.text[r.at] != ']') {
			r.failed = true
		}
	}
}

// value returns any value as it is.
func (r *reader) value() string {
	begin := r.at
	r.at = skipValue(r.text, r.at)
	return r.text[begin:r.at]
}

func (r *reader) string() string {
	begin := r.at
	if !r.next('"') {
		r.failed = true
		return ""
	}
	length := strings.IndexByte(r.text[r.at:], '"')
	if length < 0 {
		r.failed = true
		return ""
	}
	found := r.text[r.at : r.at+length]
	if strings.IndexByte(found, '\\') >= 0 {
		r.at = begin
		return r.escaped()
	}
	r.at += length + 1
	return found
}

func (r *reader) escaped() (decoded string) {
	if err := json.Unmarshal([]byte(r.value()), &decoded); err != nil {
		r.failed = true
	}
	return decoded
}

func (r *reader) stringMap() map[string]string {
	values := map[string]string{}
	r.object(func(key string) { values[key] = r.string() })
	return values
}

func (r *reader) integer() int64 {
	value, err := strconv.ParseInt(r.value(), 10, 64)
	if err != nil {
		r.failed = true
	}
	return value
}

func (r *reader) boolean() bool {
	value := r.value()
	if value != "true" && value != "false" {
		r.failed = true
	}
	return value == "true"
}

// time returns nil for null.
func (r *reader) time() *metav1.Time {
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
