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
	"k8s.io/apimachinery/pkg/util/wait"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// probeInterval is the delay between two probes of a change in the main cluster.
const probeInterval = 100 * time.Millisecond

// waitServed returns when the main cluster serves a resource in MainCopyVersion, or no longer
// does.
func (c *Copy) waitServed(ctx context.Context, resource Resource, served bool) error {
	settle := c.settle
	if !served {
		settle = min(settle, closeSettle)
	}
	err := c.holdsFor(ctx, settle, func(ctx context.Context) (bool, error) {
		_, err := c.freshReads.Resource(resource.Opened()).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return !served, errors.New("the version is not served")
		}
		if err != nil {
			return false, err
		}
		return served, errors.New("the version is served")
	})
	if err != nil {
		return fmt.Errorf("wait for version %s of %s in the main cluster: %w", hostingv1alpha1.MainCopyVersion, resource.Name, err)
	}
	if !served {
		return nil
	}
	return c.checkLocal(ctx, hostingv1alpha1.MainCopyVersion, resource.Stored.Group)
}

// checkLocal returns an error if requests for a group version leave the main cluster.
func (c *Copy) checkLocal(ctx context.Context, version, group string) error {
	name := version + "." + group
	service, err := c.apiServices.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read APIService %s of the main cluster: %w", name, err)
	}
	if to := service.Spec.Service; to != nil {
		return fmt.Errorf("APIService %s of the main cluster leads to Service %s/%s, not to the main cluster's own objects", name, to.Namespace, to.Name)
	}
	return nil
}

// holds returns when a probe succeeded over new connections for the time after which a change
// counts as known to all kube-apiservers.
func (c *Copy) holds(ctx context.Context, probe func(context.Context) (bool, error)) error {
	return c.holdsFor(ctx, c.settle, probe)
}

func (c *Copy) holdsFor(ctx context.Context, settle time.Duration, probe func(context.Context) (bool, error)) error {
	var since time.Time
	var last error
	err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
		c.reconnect()
		ok, saw := probe(ctx)
		now := time.Now()
		if !ok {
			since, last = time.Time{}, saw
			return false, nil
		}
		if since.IsZero() {
			since = now
		}
		return now.Sub(since) >= settle, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
