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

// verdict is the result of reading a reference from the API.
type verdict int

const (
	// unresolved is a reference whose object is unknown: the kind is not served in that
	// version, or is namespaced and the dependent is not. It keeps its dependents.
	unresolved verdict = iota
	found
	// ending is found, and waits for its dependents to be deleted.
	ending
	missing
)

// look reads the object of a reference from the API.
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
		return unresolved, fmt.Errorf("read the owner %s: %w", named, err)
	case owner.UID != named.uid:
		return missing, nil
	case owner.DeletionTimestamp != nil && hasFinalizer(owner, metav1.FinalizerDeleteDependents):
		return ending, nil
	default:
		return found, nil
	}
}

// isObjectNotFound distinguishes a missing object from a resource that is not served.
func isObjectNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// verifyOwner resolves an owner that was not observed, or was deleted.
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
			// Objects of a kind that is no longer served are gone only if their deletion
			// was observed.
			c.reportNamespace(ctx, named)
			c.graph.markAbsent(named)
		case verdict == unresolved:
			c.reportNamespace(ctx, named)
		default:
			// It will be observed, unless it is deleted before, which causes no event.
			result.RequeueAfter = recheckPeriod
		}
	}
	return result, utilerrors.NewAggregate(failed)
}

// reportNamespace records an event for each dependent whose owner is in another
// namespace, or in one while the dependent is cluster-scoped.
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

// reference is an owner as in its dependent. References with the same UID may differ in
// the rest, and then at most one is right.
type reference struct {
	apiVersion, kind string
	// namespace is the dependent's: an owner is in the same one or cluster-scoped.
	namespace, name string
	uid             types.UID
}

func referenceFrom(namespace string, owner metav1.OwnerReference) reference {
	return reference{apiVersion: owner.APIVersion, kind: owner.Kind, namespace: namespace, name: owner.Name, uid: owner.UID}
}

// String has the format of Kubernetes' garbage collector.
func (r reference) String() string {
	return fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", r.apiVersion, r.kind, r.namespace, r.name, r.uid)
}

func (r reference) groupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.apiVersion, r.kind)
}

// names reports whether the reference is to the object. The version is irrelevant: an
// object exists in all of them.
func (r reference) names(resource metadatainformers.Resource, object *metadatainformers.Object) bool {
	kind := r.groupVersionKind()
	return r.uid == object.UID && r.name == object.Name && kind.Kind == resource.Kind && kind.Group == resource.Group &&
		(!resource.Namespaced || r.namespace == object.Namespace)
}

// blocks reports whether the dependent blocks the deletion of the owner.
func blocks(owner metav1.OwnerReference) bool {
	return owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion
}

// waits reports whether an object's deletion waits for the garbage collector.
func waits(object *metadatainformers.Object) bool {
	return object.Deleting && (object.Foreground || object.Orphan)
}

// waitsForDependents reports whether an object's deletion waits for its dependents.
func waitsForDependents(object *metadatainformers.Object) bool {
	return object.Deleting && object.Foreground
}
