// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// GetNamespace implements metav1.Object.
func (o *Object) GetNamespace() string {
	if o.record != nil {
		return o.fields[namespaceField]
	}
	return ""
}

// GetName implements metav1.Object.
func (o *Object) GetName() string {
	if o.record == nil {
		return ""
	}
	if o.key != "" {
		return o.key[strings.LastIndexByte(o.key, '/')+1:]
	}
	json, err := o.json()
	if err != nil {
		return ""
	}
	r := &canonicaljson.Reader{Text: json, At: int(o.metadata.Start)}
	name, found := canonicaljson.Member(json, r.At, "name")
	if !found {
		return ""
	}
	r.At = int(name.Start)
	return r.String()
}

// GetLabels implements metav1.Object.
func (o *Object) GetLabels() map[string]string {
	if o.record != nil {
		return maps.Clone(o.labels)
	}
	return nil
}

// GetGenerateName implements metav1.Object.
func (o *Object) GetGenerateName() string { return o.DecodeMetadata().GetGenerateName() }

// GetUID implements metav1.Object.
func (o *Object) GetUID() types.UID { return o.DecodeMetadata().GetUID() }

// GetGeneration implements metav1.Object.
func (o *Object) GetGeneration() int64 { return o.DecodeMetadata().GetGeneration() }

// GetSelfLink implements metav1.Object.
func (o *Object) GetSelfLink() string { return o.DecodeMetadata().GetSelfLink() }

// GetCreationTimestamp implements metav1.Object.
func (o *Object) GetCreationTimestamp() metav1.Time { return o.DecodeMetadata().GetCreationTimestamp() }

// GetDeletionTimestamp implements metav1.Object.
func (o *Object) GetDeletionTimestamp() *metav1.Time {
	return o.DecodeMetadata().GetDeletionTimestamp()
}

// GetDeletionGracePeriodSeconds implements metav1.Object.
func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	return o.DecodeMetadata().GetDeletionGracePeriodSeconds()
}

// GetAnnotations implements metav1.Object.
func (o *Object) GetAnnotations() map[string]string { return o.DecodeMetadata().GetAnnotations() }

// GetFinalizers implements metav1.Object.
func (o *Object) GetFinalizers() []string { return o.DecodeMetadata().GetFinalizers() }

// GetOwnerReferences implements metav1.Object.
func (o *Object) GetOwnerReferences() []metav1.OwnerReference {
	return o.DecodeMetadata().GetOwnerReferences()
}

// GetManagedFields implements metav1.Object.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry {
	return o.DecodeMetadata().GetManagedFields()
}

// SetNamespace implements metav1.Object.
func (o *Object) SetNamespace(value string) {
	o.edit(func(object metav1.Object) { object.SetNamespace(value) })
}

// SetName implements metav1.Object.
func (o *Object) SetName(value string) {
	o.edit(func(object metav1.Object) { object.SetName(value) })
}

// SetLabels implements metav1.Object.
func (o *Object) SetLabels(value map[string]string) {
	o.edit(func(object metav1.Object) { object.SetLabels(value) })
}

// SetGenerateName implements metav1.Object.
func (o *Object) SetGenerateName(value string) {
	o.edit(func(object metav1.Object) { object.SetGenerateName(value) })
}

// SetUID implements metav1.Object.
func (o *Object) SetUID(value types.UID) {
	o.edit(func(object metav1.Object) { object.SetUID(value) })
}

// SetGeneration implements metav1.Object.
func (o *Object) SetGeneration(value int64) {
	o.edit(func(object metav1.Object) { object.SetGeneration(value) })
}

// SetSelfLink implements metav1.Object.
func (o *Object) SetSelfLink(value string) {
	o.edit(func(object metav1.Object) { object.SetSelfLink(value) })
}

// SetCreationTimestamp implements metav1.Object.
func (o *Object) SetCreationTimestamp(value metav1.Time) {
	o.edit(func(object metav1.Object) { object.SetCreationTimestamp(value) })
}

// SetDeletionTimestamp implements metav1.Object.
func (o *Object) SetDeletionTimestamp(value *metav1.Time) {
	o.edit(func(object metav1.Object) { object.SetDeletionTimestamp(value) })
}

// SetDeletionGracePeriodSeconds implements metav1.Object.
func (o *Object) SetDeletionGracePeriodSeconds(value *int64) {
	o.edit(func(object metav1.Object) { object.SetDeletionGracePeriodSeconds(value) })
}

// SetAnnotations implements metav1.Object.
func (o *Object) SetAnnotations(value map[string]string) {
	o.edit(func(object metav1.Object) { object.SetAnnotations(value) })
}

// SetFinalizers implements metav1.Object.
func (o *Object) SetFinalizers(value []string) {
	o.edit(func(object metav1.Object) { object.SetFinalizers(value) })
}

// SetOwnerReferences implements metav1.Object.
func (o *Object) SetOwnerReferences(value []metav1.OwnerReference) {
	o.edit(func(object metav1.Object) { object.SetOwnerReferences(value) })
}

// SetManagedFields implements metav1.Object.
func (o *Object) SetManagedFields(value []metav1.ManagedFieldsEntry) {
	o.edit(func(object metav1.Object) { object.SetManagedFields(value) })
}
