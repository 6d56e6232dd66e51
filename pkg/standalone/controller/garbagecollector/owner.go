// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// verdict is what the server says about a reference.
type verdict int

const (
	// unresolved is a reference that nothing can be said about: the kind is not
	// served in that version, or is of objects in namespaces and the dependent is
	// in none. It may lead to an object, so it keeps its dependents.
	unresolved verdict = iota
	found
	// ending is found, and waiting for its dependents to go.
	ending
	missing
)

// look asks the server for what a reference names.
func (c *collector) look(ctx context.Context, named reference) (verdict, error) {
	resource, served := c.informers.ResourceFor(named.groupVersionKind())
	if !served {
		return unresolved, nil
	}
	namespace := ""
	if resource.Namespaced {
		if namespace = named.namespace; namespace == "" {
			return unresolved, nil
		}
	}
	owner, err := c.annexMetadata.Resource(resource.GroupVersionResource).Namespace(namespace).Get(ctx, named.name, metav1.GetOptions{})
	switch {
	case isObjectNotFound(err):
		return missing, nil
	case apierrors.IsNotFound(err):
		return unresolved, nil // the resource is about to be gone, or about to be served
	case err != nil:
		return unresolved, fmt.Errorf("look for the owner %s: %w", named, err)
	case owner.UID != named.uid:
		return missing, nil
	case owner.DeletionTimestamp != nil && hasFinalizer(owner, metav1.FinalizerDeleteDependents):
		return ending, nil
	default:
		return found, nil
	}
}

// isObjectNotFound reports whether an error says that a resource is there and an
// object of it is not. A server that does not know the resource says "not found" too.
func isObjectNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// verifyOwner finds out what became of an owner that nobody saw, or that was seen
// to be deleted.
func (c *collector) verifyOwner(ctx context.Context, uid types.UID) (framework.Result, error) {
	var result framework.Result
	var failed []error
	references, isGone := c.graph.references(uid)
	for _, named := range references {
		verdict, err := c.look(ctx, named)
		switch {
		case err != nil:
			failed = append(failed, err)
		case verdict == missing, verdict == unresolved && isGone(named):
			// Of what is not served any more, only what was seen to go is gone.
			c.reportNamespace(ctx, named)
			c.graph.markAbsent(named)
		case verdict == unresolved:
			c.reportNamespace(ctx, named)
		default:
			// It will be seen, unless it goes before; nobody would tell of that.
			result.RequeueAfter = recheckPeriod
		}
	}
	return result, utilerrors.NewAggregate(failed)
}

// reportNamespace tells in an event of each dependent that its owner is one that it
// cannot have, if that is so: in another namespace, or in one while it is in none.
func (c *collector) reportNamespace(ctx context.Context, named reference) {
	resource, served := c.informers.ResourceFor(named.groupVersionKind())
	if !served || !resource.Namespaced {
		return
	}
	if named.namespace != "" {
		owner := c.informers.Find(resource.GroupResource(), named.name, named.uid)
		if owner == nil || owner.Namespace == named.namespace {
			return
		}
	}
	for _, dependent := range c.graph.naming(named) {
		c.warn(ctx, dependent, "OwnerRefInvalidNamespace", named.String(),
			fmt.Sprintf("ownerRef %s does not exist in namespace %q", named, dependent.Namespace))
	}
}

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
