// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"
)

// RewriteOwners writes the new UIDs of owners that were created in annex to the ownerReferences of all
// objects in the main cluster, including objects of other API servers. It returns the number of changed
// objects, and the resources that it had to skip, without a name if a whole group version cannot be discovered.
//
// References to owners in gone that do not exist get a UID that no object has: the garbage collector may have
// missed their deletion, and reads only owners that are not in its cache. The main cluster serves gone again.
func (c *Copy) RewriteOwners(ctx context.Context, pairs *Pairs, gone ...Resource) (int64, []schema.GroupVersionResource, error) {
	o := &owners{copy: c, resources: gone, pairs: pairs, present: sets.New[types.UID]()}
	for _, resource := range gone {
		if err := o.list(ctx, resource); err != nil {
			return 0, nil, err
		}
	}
	changeable, skipped, err := c.changeable()
	if err != nil {
		return 0, nil, err
	}
	var rewritten atomic.Int64
	for _, resource := range changeable {
		var forbidden atomic.Bool
		err := c.eachObject(ctx, resource, func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
			changed, err := o.rewrite(ctx, resource, object)
			if changed {
				rewritten.Add(1)
			}
			if apierrors.IsForbidden(err) {
				forbidden.Store(true)
				return nil
			}
			return err
		})
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
			return rewritten.Load(), skipped, err
		}
		if apierrors.IsForbidden(err) || forbidden.Load() {
			skipped = append(skipped, resource)
		}
	}
	return rewritten.Load(), skipped, nil
}

// MayRewriteOwners reports whether annex has OwnerRules, with which RewriteOwners skips nothing.
func (c *Copy) MayRewriteOwners(ctx context.Context) (bool, error) {
	for _, rule := range OwnerRules() {
		for _, verb := range rule.Verbs {
			review, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: verb},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return false, fmt.Errorf("read whether annex may %s all resources of the main cluster: %w", verb, err)
			}
			if !review.Status.Allowed {
				return false, nil
			}
		}
	}
	return true, nil
}

// changeable returns the resources of the main cluster, each in one version, that can be listed
// and patched.
func (c *Copy) changeable() (found, skipped []schema.GroupVersionResource, err error) {
	lists, err := c.kube.Discovery().ServerPreferredResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		for version := range failed.Groups {
			skipped = append(skipped, version.WithResource(""))
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discover the resources of the main cluster: %w", err)
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, fmt.Errorf("discover the resources of the main cluster: %w", err)
		}
		for _, resource := range list.APIResources {
			found = append(found, version.WithResource(resource.Name))
		}
	}
	return found, skipped, nil
}

// owners are the objects of a group, as owners of others.
type owners struct {
	copy  *Copy
	pairs *Pairs
	// resources are searched for owners that are gone.
	resources []Resource
	// present are the UIDs of the objects when they were listed.
	present sets.Set[types.UID]
}

func (o *owners) list(ctx context.Context, resource Resource) error {
	if err := o.copy.checkLocal(ctx, resource.Stored); err != nil {
		return err
	}
	return o.copy.readAll(ctx, resource.Stored, func(object *metav1.PartialObjectMetadata) { o.present.Insert(object.UID) })
}

func (o *owners) rewrite(ctx context.Context, resource schema.GroupVersionResource, object *metav1.PartialObjectMetadata) (changed bool, err error) {
	objects := o.copy.metadata.Resource(resource).Namespace(object.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		corrected, err := o.correct(ctx, object)
		if err != nil || slices.Equal(corrected, object.OwnerReferences) {
			return err
		}
		changed = true
		err = o.copy.pace.Do(ctx, func() error { return patchMetadata(ctx, objects, object, map[string]any{"ownerReferences": corrected}) })
		if apierrors.IsConflict(err) {
			current, getErr := objects.Get(ctx, object.Name, metav1.GetOptions{})
			if getErr != nil {
				return ignoreMissing(getErr)
			}
			object = current
		}
		if err := ignoreMissing(err); err != nil {
			return fmt.Errorf("change the owners of %s %s/%s in the main cluster: %w", resource.GroupResource(), object.Namespace, object.Name, err)
		}
		return nil
	})
	return changed, err
}

func (o *owners) correct(ctx context.Context, object *metav1.PartialObjectMetadata) ([]metav1.OwnerReference, error) {
	corrected := slices.Clone(object.OwnerReferences)
	for i := range corrected {
		uid, err := o.uidOf(ctx, object.Namespace, corrected[i])
		if err != nil {
			return nil, err
		}
		corrected[i].UID = uid
	}
	return corrected, nil
}

// uidOf returns the UID that a reference should have. The owner may be newer than the list.
func (o *owners) uidOf(ctx context.Context, namespace string, owner metav1.OwnerReference) (types.UID, error) {
	uid := o.pairs.inMain(namespace, owner)
	of, inGroup := o.pairs.owner(namespace, owner)
	of.uid = uid
	at := slices.IndexFunc(o.resources, func(r Resource) bool { return strings.EqualFold(r.Kind, owner.Kind) })
	if !inGroup || at < 0 || o.present.Has(uid) || o.pairs.isGone(of) {
		return uid, nil
	}
	resource := o.resources[at]
	if resource.Namespaced && namespace == "" {
		return uid, nil // the garbage collector reports it, and leaves it alone
	}
	found, err := o.copy.metadata.Resource(resource.Stored).Namespace(of.namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case isMissing(err) || err == nil && found.UID != uid:
		return o.pairs.markGone(of), nil
	case err != nil:
		return "", fmt.Errorf("look for the owner %s %s/%s in the main cluster: %w", resource.Name, of.namespace, owner.Name, err)
	}
	return uid, nil
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patchMetadata changes fields of an object's metadata if it is still as it was read.
func patchMetadata(ctx context.Context, objects metadata.ResourceInterface, object *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["uid"], fields["resourceVersion"] = object.UID, object.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	_, err = objects.Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
