// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// reference is an owner as one of its dependents names it. Dependents that name
// the same UID may differ in the rest, and then at most one is right.
type reference struct {
	apiVersion, kind string
	// namespace is the dependent's: an owner is there or has no namespace.
	namespace, name string
	uid             types.UID
}

func referenceFrom(namespace string, owner metav1.OwnerReference) reference {
	return reference{apiVersion: owner.APIVersion, kind: owner.Kind, namespace: namespace, name: owner.Name, uid: owner.UID}
}

// String says it as Kubernetes' garbage collector does.
func (r reference) String() string {
	return fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", r.apiVersion, r.kind, r.namespace, r.name, r.uid)
}

func (r reference) groupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.apiVersion, r.kind)
}

// names reports whether the reference is one to the object. The version does not
// matter: an object is there in all of them.
func (r reference) names(resource metadatainformers.Resource, object *metadatainformers.Object) bool {
	kind := r.groupVersionKind()
	return r.uid == object.UID && r.name == object.Name && kind.Kind == resource.Kind && kind.Group == resource.Group &&
		(!resource.Namespaced || r.namespace == object.Namespace)
}

// blocks reports whether an owner that waits for dependents waits for this one.
func blocks(owner metav1.OwnerReference) bool {
	return owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion
}

// waits reports whether an object is being deleted and the garbage collector has
// to do something first.
func waits(object *metadatainformers.Object) bool {
	return object.Deleting && (object.Foreground || object.Orphan)
}

// waitsForDependents reports whether an object is being deleted and waits for its
// dependents to go.
func waitsForDependents(object *metadatainformers.Object) bool {
	return object.Deleting && object.Foreground
}
