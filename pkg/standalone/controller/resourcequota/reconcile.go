// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// A quota whose resources are not current is reconciled again after staleAgain.
const staleAgain = time.Second

// metered is the state of a quota's limits.
type metered struct {
	uid    types.UID
	meters map[corev1.ResourceName]*meter
}

type reconciler struct {
	getQuota     func(ctx context.Context, key types.NamespacedName) (*corev1.ResourceQuota, error)
	updateStatus func(ctx context.Context, quota *corev1.ResourceQuota) error
	state        func(resource schema.GroupResource) (metadatainformers.State, bool)
	tally        func(place) tally
	now          func() time.Time
	throttle     *framework.Throttle

	mu     sync.Mutex
	quotas map[types.NamespacedName]*metered
}

// reconcile writes the usage of one quota. It reads the quota from the API: concurrent
// charges must be known, and not overwritten.
func (r *reconciler) reconcile(ctx context.Context, key types.NamespacedName) (framework.Result, error) {
	if wait := r.throttle.Delay(key.String()); wait > 0 {
		return framework.Result{RequeueAfter: wait}, nil
	}
	quota, err := framework.IgnoreNotFound(r.getQuota(ctx, key))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read ResourceQuota %s: %w", key, err)
	}
	if quota == nil {
		r.forget(key)
		return framework.Result{}, nil
	}
	r.throttle.Mark(key.String())
	of := r.metered(key, quota.UID)
	status, readings, again := r.status(quota, of)
	if !apiequality.Semantic.DeepEqual(status, quota.Status) {
		updated := quota.DeepCopy()
		updated.Status = status
		switch err := r.updateStatus(ctx, updated); {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			return framework.Result{RequeueAfter: interval}, nil
		case err != nil:
			// Whether it was written is unknown.
			r.forget(key)
			return framework.Result{}, fmt.Errorf("write the usage of ResourceQuota %s: %w", key, err)
		}
	}
	for _, reading := range readings {
		reading.meter.shows(reading.used, reading.counted)
	}
	return framework.Result{RequeueAfter: again}, nil
}

// reading is the result of a meter.
type reading struct {
	meter   *meter
	used    int64
	counted tally
}

// status returns the wanted status of the quota, the readings it is based on, and when to
// reconcile again.
func (r *reconciler) status(quota *corev1.ResourceQuota, of *metered) (corev1.ResourceQuotaStatus, []reading, time.Duration) {
	status := corev1.ResourceQuotaStatus{Hard: quota.Spec.DeepCopy().Hard, Used: corev1.ResourceList{}}
	var readings []reading
	next := resync
	for name := range quota.Spec.Hard {
		counted, ok := countedResource(name)
		switch {
		case !ok:
			continue
		case isScoped(quota):
			status.Used[name] = *resource.NewQuantity(0, resource.DecimalSI)
			continue
		}
		shown, known := quota.Status.Used[name]
		state, served := r.state(counted)
		if served && !state.Synced {
			// Admission rejects charges on an unknown usage.
			if known {
				status.Used[name] = shown
			}
			next = min(next, staleAgain)
			continue
		}
		if of.meters[name] == nil {
			of.meters[name] = &meter{}
		}
		m, current := of.meters[name], !served || state.Current
		objects := r.tally(place{counted, quota.Namespace})
		used, again := objects.count, time.Duration(0)
		if known {
			used, again = m.read(shown.Value(), objects, current, r.now())
		}
		if again > 0 {
			next = min(next, again)
		}
		if !current {
			next = min(next, staleAgain)
		}
		status.Used[name] = *resource.NewQuantity(used, resource.DecimalSI)
		readings = append(readings, reading{m, used, objects})
	}
	return status, readings, next
}

func (r *reconciler) metered(key types.NamespacedName, uid types.UID) *metered {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.quotas[key]
	if of == nil || of.uid != uid {
		of = &metered{uid: uid, meters: map[corev1.ResourceName]*meter{}}
		r.quotas[key] = of
	}
	return of
}

func (r *reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.quotas, key)
	r.throttle.Forget(key.String())
}
