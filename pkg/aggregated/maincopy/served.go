// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// probeInterval is the delay between two probes of a change in the main cluster.
const probeInterval = 100 * time.Millisecond

// waitServed returns when the main cluster serves resources in MainCopyVersion, or no longer does.
func (c *Copy) waitServed(ctx context.Context, resources []Resource, served bool) error {
	if len(resources) == 0 {
		return nil
	}
	settle := c.settle
	if !served {
		settle = min(settle, closeSettle)
	}
	err := c.holds(ctx, settle, func(ctx context.Context, fresh dynamic.Interface) error {
		for _, resource := range resources {
			if err := probeServed(ctx, fresh, resource, served); err != nil {
				return fmt.Errorf("version %s of %s: %w", resource.Opened().Version, resource.Name, err)
			}
		}
		return nil
	})
	if err == nil && served {
		err = c.checkLocal(ctx, resources[0].Opened())
	}
	if err != nil {
		return fmt.Errorf("wait for the version of the main cluster's copy: %w", err)
	}
	return nil
}

// probeServed returns an error unless the main cluster serves a resource in MainCopyVersion as it is to.
func probeServed(ctx context.Context, fresh dynamic.Interface, resource Resource, served bool) error {
	_, err := fresh.Resource(resource.Opened()).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err) && served:
		return errors.New("it is not served")
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && !served:
		return errors.New("it is served")
	}
	return err
}

// checkLocal returns an error if requests for the group version of a resource leave the main cluster.
func (c *Copy) checkLocal(ctx context.Context, resource schema.GroupVersionResource) error {
	name := resource.Version + "." + resource.Group
	service, err := c.objects.Resource(apiServicesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read APIService %s of the main cluster: %w", name, err)
	}
	if to, leaves, _ := unstructured.NestedMap(service.Object, "spec", "service"); leaves {
		return fmt.Errorf("APIService %s of the main cluster leads to Service %v/%v, not to the main cluster's own objects", name, to["namespace"], to["name"])
	}
	return nil
}

// holds returns when a probe has succeeded over new connections for a time.
func (c *Copy) holds(ctx context.Context, settle time.Duration, probe func(context.Context, dynamic.Interface) error) error {
	fresh, reconnect, err := c.newProbes()
	if err != nil {
		return fmt.Errorf("create a client for probes of the main cluster: %w", err)
	}
	defer reconnect()
	var since time.Time
	var last error
	err = wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
		reconnect()
		last = probe(ctx, fresh)
		switch {
		case last != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return last == nil && time.Since(since) >= settle, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
