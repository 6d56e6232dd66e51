// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// identity are the fields of metadata that each cluster sets itself. A write to the main cluster has to repeat them.
var identity = []string{"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"}

func keyOf(object metav1.Object) string { return cache.MetaObjectToName(object).String() }

// uidOf returns the UID that an owner has in the main cluster, for a reference in a namespace.
type uidOf func(namespace string, reference metav1.OwnerReference) types.UID

// content is an object without the fields that differ between the clusters. The owners get
// the UIDs that they have in the main cluster. The object is not changed.
func content(object *unstructured.Unstructured, inMain uidOf) map[string]any {
	kept := maps.Clone(object.Object)
	delete(kept, "apiVersion")
	metadata, _ := kept["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, field := range append([]string{"selfLink", "managedFields"}, identity...) {
		delete(metadata, field)
	}
	if owners := object.GetOwnerReferences(); len(owners) > 0 {
		mapped, _, _ := unstructured.NestedSlice(object.Object, "metadata", "ownerReferences")
		for i, owner := range owners {
			mapped[i].(map[string]any)["uid"] = string(inMain(object.GetNamespace(), owner))
		}
		metadata["ownerReferences"] = mapped
	}
	kept["metadata"] = metadata
	return kept
}

// managedFields returns who manages which fields, without the entry of raisedManager. They name owners by UID.
func managedFields(object *unstructured.Unstructured, inMain uidOf) ([]any, error) {
	managed, _, _ := unstructured.NestedSlice(object.Object, "metadata", "managedFields")
	managed = slices.DeleteFunc(managed, func(entry any) bool {
		of, _ := entry.(map[string]any)
		return of["manager"] == raisedManager
	})
	var changes []string
	for _, owner := range object.GetOwnerReferences() {
		if uid := inMain(object.GetNamespace(), owner); uid != owner.UID {
			changes = append(changes, string(owner.UID), string(uid))
		}
	}
	if len(changes) == 0 || len(managed) == 0 {
		return managed, nil
	}
	encoded, err := json.Marshal(managed)
	if err != nil {
		return nil, fmt.Errorf("encode managedFields: %w", err)
	}
	var mapped []any
	if err := json.Unmarshal([]byte(strings.NewReplacer(changes...).Replace(string(encoded))), &mapped); err != nil {
		return nil, fmt.Errorf("decode managedFields: %w", err)
	}
	return mapped, nil
}

func sameUID(_ string, owner metav1.OwnerReference) types.UID { return owner.UID }

// sameContent compares as JSON: the numbers 1 and 1.0 are the same there.
func sameContent(annex, main *unstructured.Unstructured, inMain uidOf) (bool, error) {
	return sameJSON(content(annex, inMain), content(main, sameUID))
}

func sameManagedFields(annex, main *unstructured.Unstructured, inMain uidOf) (bool, error) {
	wanted, err := managedFields(annex, inMain)
	if err != nil {
		return false, err
	}
	has, err := managedFields(main, sameUID)
	if err != nil {
		return false, err
	}
	return sameJSON(orEmpty(wanted), orEmpty(has))
}

func sameJSON(annex, main any) (bool, error) {
	first, err := json.Marshal(annex)
	if err != nil {
		return false, fmt.Errorf("encode an object of annex: %w", err)
	}
	second, err := json.Marshal(main)
	if err != nil {
		return false, fmt.Errorf("encode an object of the main cluster: %w", err)
	}
	return bytes.Equal(first, second), nil
}

func isTerminating(object metav1.Object) bool { return object.GetDeletionTimestamp() != nil }

// forMain returns the object to write to the main cluster for one of annex. main is the object that it has
// now, or nil.
func forMain(annex, main *unstructured.Unstructured, inMain uidOf) (*unstructured.Unstructured, error) {
	written := &unstructured.Unstructured{Object: content(annex, inMain)}
	written.SetGroupVersionKind(annex.GroupVersionKind().GroupKind().WithVersion(hostingv1alpha1.MainCopyVersion))
	managed, err := managedFields(annex, inMain)
	if err != nil {
		return nil, err
	}
	metadata := written.Object["metadata"].(map[string]any)
	metadata["managedFields"] = orEmpty(managed)
	if main == nil {
		return written, nil
	}
	for _, field := range identity {
		if value, has, _ := unstructured.NestedFieldNoCopy(main.Object, "metadata", field); has {
			metadata[field] = value
		}
	}
	return written, nil
}

// orEmpty returns managedFields as they are set exactly. An empty list means to the API server that they stay, and an
// empty entry that they are removed.
func orEmpty(managed []any) []any {
	if len(managed) == 0 {
		return []any{map[string]any{}}
	}
	return managed
}
