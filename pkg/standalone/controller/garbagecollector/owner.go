// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// verdict is the result of reading a reference from the API.
type verdict int

const (
	// unresolved is a reference whose object is unknown: the kind is not served, or is
	// namespaced and the dependent is not. It keeps its dependents.
	unresolved verdict = iota
	found
	// ending is found, and waits for its dependents to be deleted.
	ending
	missing
)

// look reads the object of a reference from the API.
func (c *collector) look(ctx context.Context, named reference) (verdict, error) {
	resource, served := c.informers.ResourceFor(named.groupKind())
	switch {
	case !served, len(named.name) > maxName:
		return unresolved, nil
	case named.name == "", len(content.IsPathSegmentName(named.name)) > 0:
		return missing, nil // no object can have that name
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
	gone := sets.New[reference]()
	for named, dependents := range references {
		verdict, err := c.look(ctx, named)
		if err == nil && (verdict == missing || verdict == unresolved) {
			for _, dependent := range dependents {
				c.reportNamespace(ctx, dependent, named)
			}
		}
		switch {
		case err != nil:
			failed = append(failed, err)
		case verdict == missing, verdict == unresolved && isGone(named):
			// Objects of a kind that is no longer served are gone only if their deletion
			// was observed.
			gone.Insert(named)
		case verdict == unresolved:
		default:
			// It will be observed, unless it is deleted before, which causes no event.
			result.RequeueAfter = recheckPeriod
		}
	}
	c.graph.markAbsent(uid, gone)
	return result, utilerrors.NewAggregate(failed)
}

// reportNamespace records an event if the owner of a dependent is in another namespace, or
// in one while the dependent is cluster-scoped.
func (c *collector) reportNamespace(ctx context.Context, dependent item, named reference) {
	resource, served := c.informers.ResourceFor(named.groupKind())
	if !served || !resource.Namespaced {
		return
	}
	if named.namespace != "" {
		owner := c.informers.Find(resource.GroupResource(), named.name, named.uid)
		if owner == nil || owner.Namespace == named.namespace {
			return
		}
	}
	c.warn(ctx, dependent, "OwnerRefInvalidNamespace", "",
		fmt.Sprintf("ownerRef %s does not exist in namespace %q", named, dependent.Namespace))
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

// maxName bounds the names that are read: what a reference has may be as long as an object.
const maxName = 1024

// String has the format of Kubernetes' garbage collector.
func (r reference) String() string {
	return fmt.Sprintf("[%.*s/%.*s, namespace: %s, name: %.*s, uid: %.*s]",
		maxName, r.apiVersion, maxName, r.kind, r.namespace, maxName, r.name, maxName, r.uid)
}

// groupKind returns the kind. The version is irrelevant: an object exists in all of them,
// and one that is no longer served is of the same kind. An apiVersion that is not one has
// no kind.
func (r reference) groupKind() schema.GroupKind {
	kind := schema.FromAPIVersionAndKind(r.apiVersion, r.kind)
	if kind.Version == "" {
		return schema.GroupKind{}
	}
	return kind.GroupKind()
}

// names reports whether the reference is to the object. The UID is not enough: all users can
// write it, in any namespace.
func (r reference) names(of item) bool {
	return r.uid == of.UID && r.name == of.Name && of.HasKind(r.groupKind()) && (!of.Namespaced || r.namespace == of.Namespace)
}

// blocksAny reports whether references from a namespace block the deletion of an object.
func blocksAny(references []metav1.OwnerReference, namespace string, of item) bool {
	return slices.ContainsFunc(references, func(ref metav1.OwnerReference) bool {
		return blocks(ref) && referenceFrom(namespace, ref).names(of)
	})
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
