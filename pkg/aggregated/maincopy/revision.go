// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// MaxRaise is by how much RaiseRevision raises the revision at most, which takes about 14 hours.
	MaxRaise = 50_000_000

	// RaisedPerSecond is about how fast that is.
	RaisedPerSecond = 1000

	// raiseWorkers is the largest number of ConfigMaps. Each has one update in flight. With 64,
	// BenchmarkRaiseRevision of the cluster tests measured 1200 revisions/s on two cores, which
	// kube-apiserver and etcd shared with other tests. 200 were not faster.
	raiseWorkers = 64

	// writesPerWorker is the number of writes for which another ConfigMap is created and deleted.
	writesPerWorker = 8

	// RevisionPrefix is the prefix of the names of these ConfigMaps, in namespace annex-system.
	RevisionPrefix = "annex-revision-"
)

// RaiseRevision makes writes in the main cluster until its etcd has a revision above a value,
// which is at least the resource version of everything that annex has served. It returns the
// revision. It writes ConfigMaps in namespace annex-system, and deletes them if annex may do that.
func (c *Copy) RaiseRevision(ctx context.Context, above int64) (int64, error) {
	// A write has the current revision, which no cache has to reach first.
	now, err := c.raised(ctx)
	if err != nil {
		return 0, err
	}
	if now > above {
		return now, nil
	}
	if distance := above - now; distance > MaxRaise {
		return now, fmt.Errorf("raise the main cluster's revision from %d above %d: that takes %d writes, more than the limit of %d. "+
			"annex's resource versions are too far ahead: move the group back by a backup, with clients stopped", now, above, distance, MaxRaise)
	}
	var passed atomic.Int64
	workers, working := errgroup.WithContext(ctx)
	for i := range min(raiseWorkers, 1+(above-now)/writesPerWorker) {
		workers.Go(func() error { return c.raise(working, RevisionPrefix+strconv.FormatInt(i, 10), above, &passed) })
	}
	if err := workers.Wait(); err != nil {
		return 0, fmt.Errorf("raise the main cluster's revision above %d: %w", above, err)
	}
	return passed.Load(), nil
}

// Reached returns a recent revision that a write of RaiseRevision had.
func (c *Copy) Reached() int64 { return c.raising.reached.Load() }

// RevisionsBelow returns how many writes RaiseRevision makes at least. It makes one itself.
func (c *Copy) RevisionsBelow(ctx context.Context, above int64) (int64, error) {
	now, err := c.raised(ctx)
	return max(0, above-now), err
}

// raised makes one write, and returns its revision.
func (c *Copy) raised(ctx context.Context) (int64, error) {
	var passed atomic.Int64
	err := c.raise(ctx, RevisionPrefix+"0", -1, &passed)
	return passed.Load(), err
}

// raise writes one object until a worker has passed a revision, and deletes it.
func (c *Copy) raise(ctx context.Context, name string, above int64, passed *atomic.Int64) error {
	objects := c.kube.CoreV1().ConfigMaps(hostingv1alpha1.NamespaceAnnexSystem)
	for passed.Load() == 0 {
		revision, err := writeOnce(ctx, objects, name)
		if err != nil {
			return fmt.Errorf("write ConfigMap %s/%s: %w", hostingv1alpha1.NamespaceAnnexSystem, name, err)
		}
		c.raising.reached.Store(revision)
		if revision > above {
			passed.Store(revision)
		}
	}
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("delete ConfigMap %s/%s: %w", hostingv1alpha1.NamespaceAnnexSystem, name, err)
	}
	return nil
}

// writeOnce makes one write, and returns its revision. Other groups' rollbacks write and delete the
// object too.
func writeOnce(ctx context.Context, objects corev1client.ConfigMapInterface, name string) (int64, error) {
	next := &corev1.ConfigMap{
		// Updates of an object without managedFields are cheaper.
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		// An update without a change makes no revision.
		Data: map[string]string{"at": time.Now().Format(time.RFC3339Nano)},
	}
	for {
		written, err := objects.Update(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			written, err = objects.Create(ctx, next, metav1.CreateOptions{})
		}
		if err == nil {
			return parseRevision(written.ResourceVersion)
		}
		if !apierrors.IsAlreadyExists(err) {
			return 0, err
		}
	}
}
