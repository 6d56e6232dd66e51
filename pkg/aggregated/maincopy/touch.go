// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// raisedManager is the manager of an entry in managedFields whose field no object has. A write that adds
// or removes the entry changes nothing else, and gives the object a new resource version: without a change the API
// server would store nothing.
const raisedManager = "annex-resource-version"

// raiseStep is the number of revisions by which the main cluster's is raised above an object's, so that it
// suffices for the next ones.
const raiseStep = 100

// isNewer reports whether the resource version in the main cluster is above annex's. No client may
// see an object's resource version decrease when the main cluster serves it again.
func isNewer(main, annex *unstructured.Unstructured) (bool, error) {
	order, err := resourceversion.CompareResourceVersion(main.GetResourceVersion(), annex.GetResourceVersion())
	return order > 0, err
}

// makeNewer gives an object a resource version above annex's, by one write, and sets its managedFields.
func (t *target) makeNewer(ctx context.Context, annex, main *unstructured.Unstructured) error {
	revision, err := parseRevision(annex.GetResourceVersion())
	if err != nil {
		return err
	}
	if err := t.copy.raiseFor(ctx, revision); err != nil {
		return err
	}
	managed, err := managedFields(annex, t.pairs.inMain)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(main.GetManagedFields(), isRaised) {
		managed = append(managed, map[string]any{
			"manager": raisedManager, "operation": string(metav1.ManagedFieldsOperationApply), "apiVersion": t.resource.Stored.GroupVersion().String(),
			"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:annex.dev/raised": map[string]any{}}}},
		})
	}
	objects := t.copy.metadata.Resource(t.resource.Opened()).Namespace(main.GetNamespace())
	read := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: main.GetName(), UID: main.GetUID(), ResourceVersion: main.GetResourceVersion()}}
	if err := patchMetadata(ctx, objects, read, map[string]any{"managedFields": orEmpty(managed)}); err != nil {
		return fmt.Errorf("raise its resource version: %w", err)
	}
	t.written.Add(1)
	return nil
}

func isRaised(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == raisedManager }

// raiseFor raises the main cluster's revision above one, unless it is known to be.
func (c *Copy) raiseFor(ctx context.Context, revision int64) error {
	c.raising.Lock()
	defer c.raising.Unlock()
	if revision < c.Reached() {
		return nil
	}
	_, err := c.RaiseRevision(ctx, revision+raiseStep)
	return err
}
