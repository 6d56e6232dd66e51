// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// rows returns a projection for tables: only the metadata and the parts for the columns are decoded.
func rows(parts *watchcache.Parts) projection {
	return project(func(object *watchcache.Object) (row, error) {
		content, err := parts.Decode(object)
		return row{metadata: metadata{object}, content: content}, err
	})
}

// row is an object whose metadata and some other parts are decoded.
type row struct {
	metadata
	content map[string]any
	// meta is the decoded metadata, which upstream reads several times.
	meta metav1.Object
}

var _ runtime.Unstructured = &row{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *row) GetObjectMeta() metav1.Object {
	if r.meta == nil {
		r.meta = r.object.DecodeMetadata()
	}
	return r.meta
}

// UnstructuredContent implements runtime.Unstructured.
func (r *row) UnstructuredContent() map[string]any { return r.content }

// SetUnstructuredContent implements runtime.Unstructured.
func (r *row) SetUnstructuredContent(content map[string]any) { r.content = content }

// NewEmptyInstance implements runtime.Unstructured.
func (r *row) NewEmptyInstance() runtime.Unstructured { return &unstructured.Unstructured{} }

// IsList implements runtime.Unstructured.
func (r *row) IsList() bool { return false }

// EachListItem implements runtime.Unstructured.
func (r *row) EachListItem(func(runtime.Object) error) error { return nil }

// EachListItemWithAlloc implements runtime.Unstructured.
func (r *row) EachListItemWithAlloc(func(runtime.Object) error) error { return nil }

// DeepCopyObject implements runtime.Object.
func (r *row) DeepCopyObject() runtime.Object {
	return &row{metadata: r.metadata, content: runtime.DeepCopyJSON(r.content)}
}
