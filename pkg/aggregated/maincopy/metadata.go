// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eachObject calls visit for the metadata of all objects of a resource in the main cluster, in
// parallel.
func (c *Copy) eachObject(ctx context.Context, resource schema.GroupVersionResource, visit func(context.Context, *metav1.PartialObjectMetadata) error) error {
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(Workers)
	err := c.eachPage(running, resource, func(page []metav1.PartialObjectMetadata) error {
		for i := range page {
			group.Go(func() error { return visit(running, &page[i]) })
		}
		return nil
	})
	if waitErr := group.Wait(); waitErr != nil {
		return waitErr // it ended the pages, too
	}
	return err
}

const pageSize = 500

func (c *Copy) eachPage(ctx context.Context, resource schema.GroupVersionResource, visit func([]metav1.PartialObjectMetadata) error) error {
	for next := ""; ; {
		page, err := c.metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if token := continueAfter(err); token != "" {
			page, err = c.metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
		}
		if err != nil {
			return fmt.Errorf("list %s in the main cluster: %w", resource.GroupResource(), err)
		}
		if err := visit(page.Items); err != nil {
			return err
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// continueAfter returns the token with which a list continues at the current revision, if its
// own is compacted.
func continueAfter(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}
