// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"
)

// Skipped is a resource of which RewriteOwners could not see or change the objects.
type Skipped struct {
	// Resource is empty if the whole group version cannot be discovered.
	Resource schema.GroupVersionResource
	// Reason is the error.
	Reason error
}

// RewriteOwners gives the ownerReferences of all objects in the main cluster, those of other API
// servers included, the new UIDs of their owners. It returns how many objects had others, and the
// resources that it had to skip; the garbage collector would delete dependants there once it is released.
func (c *Copy) RewriteOwners(ctx context.Context, created map[types.UID]types.UID) (int64, []Skipped, error) {
	if len(created) == 0 {
		return 0, nil, nil
	}
	resources, skipped, err := c.changeable()
	if err != nil {
		return 0, nil, err
	}
	var rewritten atomic.Int64
	for _, resource := range resources {
		var mu sync.Mutex
		err := c.eachObject(ctx, resource, func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
			changed, err := c.rewriteOwners(ctx, resource, object, created)
			if changed {
				rewritten.Add(1)
			}
			if apierrors.IsForbidden(err) {
				mu.Lock()
				defer mu.Unlock()
				skipped = append(skipped, Skipped{resource, err})
				return nil
			}
			return err
		})
		switch {
		case apierrors.IsForbidden(err):
			skipped = append(skipped, Skipped{resource, err})
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err):
			return rewritten.Load(), skipped, err
		}
	}
	return rewritten.Load(), skipped, nil
}

// changeable returns the resources of the main cluster, each in one version, that can be listed
// and patched.
func (c *Copy) changeable() ([]schema.GroupVersionResource, []Skipped, error) {
	lists, err := c.kube.Discovery().ServerPreferredResources()
	var skipped []Skipped
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		for version, err := range failed.Groups {
			skipped = append(skipped, Skipped{version.WithResource(""), err})
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discover the resources of the main cluster: %w", err)
	}
	var found []schema.GroupVersionResource
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

func (c *Copy) rewriteOwners(ctx context.Context, resource schema.GroupVersionResource, object *metav1.PartialObjectMetadata, created map[types.UID]types.UID) (changed bool, err error) {
	objects := c.metadata.Resource(resource).Namespace(object.Namespace)
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		owners, differ := newOwners(object.OwnerReferences, created)
		if !differ {
			return nil
		}
		changed = true
		err := patchMetadata(ctx, objects, object, map[string]any{"ownerReferences": owners})
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

func newOwners(owners []metav1.OwnerReference, created map[types.UID]types.UID) ([]metav1.OwnerReference, bool) {
	owners, changed := slices.Clone(owners), false
	for i := range owners {
		if uid, ok := created[owners[i].UID]; ok {
			owners[i].UID, changed = uid, true
		}
	}
	return owners, changed
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patchMetadata changes fields of an object's metadata if it is still as it was read.
func patchMetadata(ctx context.Context, objects patcher, object *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["uid"], fields["resourceVersion"] = object.UID, object.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	_, err = objects.Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// patcher is a client for the metadata of a resource.
type patcher interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*metav1.PartialObjectMetadata, error)
}
