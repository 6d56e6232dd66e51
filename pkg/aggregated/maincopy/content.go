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

// identity are the fields of metadata that each cluster sets itself.
var identity = []string{
	"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields",
}

// keptInMain are those that a write to the main cluster has to repeat.
var keptInMain = []string{"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"}

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
	for _, field := range identity {
		delete(metadata, field)
	}
	if owners, ok := metadata["ownerReferences"].([]any); ok {
		metadata["ownerReferences"] = ownersInMain(object.GetNamespace(), owners, inMain)
	}
	kept["metadata"] = metadata
	return kept
}

func ownersInMain(namespace string, owners []any, inMain uidOf) []any {
	mapped := make([]any, 0, len(owners))
	for _, owner := range owners {
		if fields, ok := owner.(map[string]any); ok {
			fields = maps.Clone(fields)
			if uid, ok := fields["uid"].(string); ok {
				fields["uid"] = string(inMain(namespace, metav1.OwnerReference{
					APIVersion: text(fields["apiVersion"]), Kind: text(fields["kind"]), Name: text(fields["name"]), UID: types.UID(uid),
				}))
			}
			owner = fields
		}
		mapped = append(mapped, owner)
	}
	return mapped
}

// text returns a string, an empty one for anything else.
func text(value any) string {
	of, _ := value.(string)
	return of
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
	if err != nil || len(wanted) == 0 && len(has) == 0 {
		return err == nil, err
	}
	return sameJSON(wanted, has)
}

func sameJSON(a, b any) (bool, error) {
	first, err := json.Marshal(a)
	if err != nil {
		return false, fmt.Errorf("encode an object of annex: %w", err)
	}
	second, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("encode an object of the main cluster: %w", err)
	}
	return bytes.Equal(first, second), nil
}

func isTerminating(object metav1.Object) bool { return object.GetDeletionTimestamp() != nil }

// forMain returns what to write to the main cluster for an object of annex. main is what it has
// now, or nil.
func forMain(annex, main *unstructured.Unstructured, inMain uidOf) (*unstructured.Unstructured, error) {
	written := &unstructured.Unstructured{Object: content(annex, inMain)}
	group, _, _ := strings.Cut(annex.GetAPIVersion(), "/")
	written.SetAPIVersion(group + "/" + hostingv1alpha1.MainCopyVersion)
	managed, err := managedFields(annex, inMain)
	if err != nil {
		return nil, err
	}
	written.Object["metadata"].(map[string]any)["managedFields"] = orEmpty(managed)
	if main != nil {
		keepIdentity(written, main)
	}
	return written, nil
}

func keepIdentity(written, main *unstructured.Unstructured) {
	metadata, _ := main.Object["metadata"].(map[string]any)
	for _, field := range keptInMain {
		if value, ok := metadata[field]; ok {
			written.Object["metadata"].(map[string]any)[field] = value
		}
	}
}

// orEmpty returns managedFields as they are set exactly. An empty list means to the API server that they stay, and an
// empty entry that they are removed.
func orEmpty(managed []any) []any {
	if len(managed) == 0 {
		return []any{map[string]any{}}
	}
	return managed
}
