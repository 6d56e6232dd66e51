// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Key is the full name of an object. All versions of a kind have the same.
type Key struct {
	Group, Kind, Namespace, Name string
}

// GroupKind is the kind of the object.
func (k Key) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

// String is "<kind>.<group> <namespace>/<name>".
func (k Key) String() string {
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + name
	}
	return k.GroupKind().String() + " " + name
}

// IsProtected reports whether deleting the object would delete others: all objects of a
// CustomResourceDefinition, or those in a Namespace. Such a mirror is not deleted when its
// static object is gone.
func (k Key) IsProtected() bool {
	return k.GroupKind() == Definition || k.GroupKind() == Namespace
}

// The kinds that others depend on.
var (
	Definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	Namespace  = schema.GroupKind{Kind: "Namespace"}
)

// Object is a static object.
type Object struct {
	Key Key
	// Source is the name of the source.
	Source string
	// Origin locates the object in the source: the file, and the number of the document.
	Origin string
	// UID identifies the static object. Its mirror has a UID of its own. UID is the same on
	// every replica and after every start.
	UID types.UID
	// Hash is a hash of the content.
	Hash string
	// Content is the content of the mirror. It is read-only.
	Content *unstructured.Unstructured
}

// ownedByServer are fields of the metadata that the server sets. Files that were made with
// `kubectl get -o yaml` have them.
var ownedByServer = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink",
}

// newObject checks a decoded object, and removes what the server and controllers set.
func newObject(source, origin string, content map[string]any) (Object, error) {
	object := &unstructured.Unstructured{Object: content}
	if err := validate(object); err != nil {
		return Object{}, err
	}
	for _, field := range ownedByServer {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	delete(content, "status")
	removeOwn(object)
	kind := object.GroupVersionKind()
	encoded, err := json.Marshal(content) // with sorted keys
	if err != nil {
		return Object{}, fmt.Errorf("encode the object: %w", err)
	}
	key := Key{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	return Object{
		Key: key, Source: source, Origin: origin,
		UID:     types.UID(hash([]byte(source + " " + key.String()))),
		Hash:    hash(encoded),
		Content: object,
	}, nil
}

// hash returns 128 bits of a hash.
func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

func validate(object *unstructured.Unstructured) error {
	if _, err := schema.ParseGroupVersion(object.GetAPIVersion()); err != nil {
		return fmt.Errorf("apiVersion: %w", err)
	}
	// The accessors ignore fields of another type.
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(object.Object, "metadata", field); err != nil {
			return fmt.Errorf("metadata.%s: must be a map of strings", field)
		}
	}
	for _, field := range []string{"name", "namespace"} {
		if _, _, err := unstructured.NestedString(object.Object, "metadata", field); err != nil {
			return fmt.Errorf("metadata.%s: must be a string: put it in quotes", field)
		}
	}
	switch {
	case object.GetAPIVersion() == "":
		return errors.New("apiVersion: must be set")
	case object.GetKind() == "":
		return errors.New("kind: must be set")
	case object.GetGenerateName() != "":
		return errors.New("metadata.generateName: must not be set: a static object has a name")
	case object.GetName() == "":
		return errors.New("metadata.name: must be set")
	case len(object.GetFinalizers()) > 0:
		return errors.New("metadata.finalizers: must not be set: controllers set them on the mirror")
	case object.Object["metadata"].(map[string]any)["ownerReferences"] != nil:
		return errors.New("metadata.ownerReferences: must not be set: the source owns the object")
	case object.GroupVersionKind().Group == hostingv1alpha1.GroupName && object.GetKind() == "StaticSource":
		return errors.New("kind: annex itself creates StaticSources")
	}
	return nil
}

// removeOwn removes the annotations and the label that annex sets on mirrors.
func removeOwn(object *unstructured.Unstructured) {
	isOwn := func(key, _ string) bool { return strings.HasPrefix(key, hostingv1alpha1.StaticPrefix) }
	if annotations := object.GetAnnotations(); annotations != nil {
		maps.DeleteFunc(annotations, isOwn)
		object.SetAnnotations(annotations)
	}
	if labels := object.GetLabels(); labels != nil {
		maps.DeleteFunc(labels, isOwn)
		object.SetLabels(labels)
	}
}
