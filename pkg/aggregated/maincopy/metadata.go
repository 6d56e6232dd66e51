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
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := c.metadata.Resource(resource).List(ctx, options)
		var status apierrors.APIStatus
		if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			options.Continue = status.Status().Continue // at the present revision
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s in the main cluster: %w", resource.GroupResource(), err)
		}
		if err := visit(page.Items); err != nil {
			return err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}
