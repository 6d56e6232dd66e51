// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// logInterval is the time after which an unchanged reason is logged again.
const logInterval = time.Minute

// retryBackoff is short at first, because both may have been started together.
var retryBackoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 15 * time.Second}

// Retry calls try until it succeeds or ctx is done, and logs the reason meanwhile.
func (c *Cluster) Retry(ctx context.Context, try func(context.Context) error) error {
	return retry(ctx, c.Config.Host, func(ctx context.Context) error { return explain(try(ctx)) })
}

// retry calls try until it succeeds or ctx is done. It logs a new reason at once, and
// an unchanged one every minute.
func retry(ctx context.Context, server string, try func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	backoff := retryBackoff
	var told string
	var toldAt time.Time
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the main cluster at %s: %w", server, context.Cause(ctx))
		}
		if err.Error() != told || time.Since(toldAt) >= logInterval {
			told, toldAt = err.Error(), time.Now()
			logger.Error(err, "Waiting for the main cluster, retrying", "server", server)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// explain adds the next step to errors that a missing manifest causes.
func explain(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; apply artifacts/deploy/base/rbac.yaml to the main cluster", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w; the main cluster rejects the credentials of the kubeconfig or service account", err)
	}
	return err
}
