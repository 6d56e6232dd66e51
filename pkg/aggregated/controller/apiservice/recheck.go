// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// firstRecheckDelay is how long an APIService is unavailable before annex requests a
	// check; the delay doubles each time. The main cluster's own checks become rarer, so
	// it would return 503 for up to half a minute after annex is back.
	firstRecheckDelay = time.Second

	// maxRechecks bounds the requests. If they do not help, annex's own downtime was not
	// the cause.
	maxRechecks = 5
)

// rechecks counts the requested checks of unavailable APIServices.
type rechecks struct {
	mu   sync.Mutex
	last map[schema.GroupVersion]recheck
}

type recheck struct {
	count int
	next  time.Time
}

// due reports whether to request a check now and, if not, when. The delay elapses also
// while requests are not allowed.
func (n *rechecks) due(version schema.GroupVersion, allowed bool, now time.Time) (due bool, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, known := n.last[version]
	if !known {
		last = recheck{next: now.Add(firstRecheckDelay)}
		n.last[version] = last
	}
	switch {
	case last.count == maxRechecks || !allowed:
		return false, 0
	case now.Before(last.next):
		return false, last.next.Sub(now)
	}
	last.count++
	last.next = now.Add(firstRecheckDelay << last.count)
	n.last[version] = last
	return true, 0
}

// forget resets an APIService that is available, or deleted.
func (n *rechecks) forget(version schema.GroupVersion) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, version)
}

// recheck makes the main cluster check an unavailable APIService of annex again, by
// changing an annotation. It returns when to retry.
func (r *reconciler) recheck(ctx context.Context, version schema.GroupVersion, current *apiService, allowed bool) (time.Duration, error) {
	if !isUnavailable(current) {
		r.rechecks.forget(version)
		return 0, nil
	}
	now := r.now()
	due, wait := r.rechecks.due(version, allowed, now)
	if !due {
		return wait, nil
	}
	updated := current.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, hostingv1alpha1.RecheckAnnotation, now.UTC().Format(time.RFC3339))
	_, err := r.mainAPIServices.Update(ctx, updated, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("recheck APIService %s: %w", updated.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Requested a check of an unavailable APIService", "apiService", updated.Name, "err", err)
	_, wait = r.rechecks.due(version, true, now)
	return wait, nil
}
