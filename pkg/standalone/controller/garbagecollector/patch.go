// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// metadataPatch is a merge patch, which every kind takes, of one list of an object
// that must be the one that was read.
type metadataPatch struct {
	Metadata struct {
		UID             types.UID                `json:"uid"`
		ResourceVersion string                   `json:"resourceVersion"`
		Owners          *[]metav1.OwnerReference `json:"ownerReferences,omitempty"`
		Finalizers      *[]string                `json:"finalizers,omitempty"`
	} `json:"metadata"`
}

// patchOwners writes all owners of an object.
func (c *collector) patchOwners(ctx context.Context, of item, live *metav1.PartialObjectMetadata, owners []metav1.OwnerReference) error {
	var patch metadataPatch
	patch.Metadata.Owners = &owners
	if err := c.patch(ctx, of, live, patch); err != nil {
		return fmt.Errorf("write the owners of %s: %w", of.name(), err)
	}
	return nil
}

// removeFinalizer lets go of an object.
func (c *collector) removeFinalizer(ctx context.Context, of item, live *metav1.PartialObjectMetadata, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(live.Finalizers), func(name string) bool { return name == finalizer })
	var patch metadataPatch
	patch.Metadata.Finalizers = &left
	if err := c.patch(ctx, of, live, patch); err != nil {
		return fmt.Errorf("remove the finalizer %s of %s: %w", finalizer, of.name(), err)
	}
	return nil
}

func (c *collector) patch(ctx context.Context, of item, live *metav1.PartialObjectMetadata, patch metadataPatch) error {
	patch.Metadata.UID, patch.Metadata.ResourceVersion = live.UID, live.ResourceVersion
	content, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = c.of(of).Patch(ctx, of.Name, types.MergePatchType, content, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
