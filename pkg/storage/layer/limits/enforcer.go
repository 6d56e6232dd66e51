// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits enforces the limits of a HostedResource on the number of objects and the bytes
// that these take in the Store, for the resource as a whole and in each namespace. It is a layer
// over the Store's keys and values, so it counts what is really stored.
//
// Limits hold with any number of replicas. Every write that may add to a limited resource also
// writes a key of the resource, the fence, on condition that the fence has not changed since the
// writer last read it; and the writer has counted everything up to that write of the fence. So
// two such writes are never based on the same count. Deletes and updates that do not grow an
// object need no fence and are never refused. Nor are writes that are exempt (isExempt); they
// are counted.
//
// The bytes that an update adds are known only with the value that it replaces. That is read
// only if the update would exceed the limit as a new object.
package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
)

// countTimeout bounds the wait of a write for the count of earlier writes. The count lags by milliseconds
// unless etcd has a problem.
const countTimeout = 10 * time.Second

// Counter counts objects. *usage.Tracker implements it.
type Counter interface {
	// Usage returns the usage of a resource.
	Usage(resource schema.GroupResource) usage.Usage
	// Namespace returns the usage of a resource in a namespace.
	Namespace(resource schema.GroupResource, namespace string) usage.Usage
	// WaitFor returns when every write up to a revision is counted.
	WaitFor(ctx context.Context, revision int64) error
}

// Config configures the limits of a resource.
type Config struct {
	// KV is the Store's etcd, with unshifted revisions.
	KV clientv3.KV
	// Prefix begins the keys of the Store.
	Prefix   string
	Resource schema.GroupResource
	// Usage counts the objects in the Store.
	Usage Counter
	// Limits returns the current limits.
	Limits func() Limits
}

// KV returns the config's KV with limited writes. The caller releases it after its last use.
func KV(config Config) (limited clientv3.KV, release func()) {
	register()
	e := &enforcer{
		Config: config, root: keys.Objects(config.Prefix, config.Resource), fenceKey: keys.Limit(config.Prefix, config.Resource), turn: semaphore.NewWeighted(1),
	}
	return etcdkv.New(config.KV, e.do), countEnforcer(config.Resource.String())
}

// enforcer makes the writes that may add to a resource, one at a time.
type enforcer struct {
	Config
	// root begins the keys of the objects.
	root, fenceKey string
	// turn is the lock of the writer.
	turn *semaphore.Weighted
	// fence is the last known write of the fence.
	fence fence
}

// do performs an operation below the limits.
func (e *enforcer) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	w, err := writeOf(e.root, op)
	if w == nil && err == nil || e.Limits().None() {
		return e.KV.Do(ctx, op)
	}
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	response, err := e.commit(ctx, *w)
	return response.OpResponse(), err
}

// fence is the revision of a write of the fence's key, 0 if there was none. Earlier writes under
// the same limits were conditional on it, or did not grow.
type fence struct {
	revision int64
	known    bool
	limits   version
}

// commit makes a write, or returns why it is forbidden.
func (e *enforcer) commit(ctx context.Context, w write) (*clientv3.TxnResponse, error) {
	if isExempt(writeinfo.FromContext(ctx)) || !w.mayGrow(e.Limits()) {
		return w.commit(ctx, e.KV)
	}
	if err := e.turn.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for other writes of %s: %w", e.Resource, err)
	}
	defer e.turn.Release(1)
	for {
		limits := e.Limits()
		if err := e.catchUp(ctx, limits); err != nil {
			return nil, err
		}
		fenced, err := e.fits(ctx, limits, w)
		if err != nil {
			return nil, err
		}
		if !fenced {
			return w.neverCreates().commit(ctx, e.KV)
		}
		r, err := e.commitFenced(ctx, w)
		if r != nil || err != nil {
			return r, err
		}
	}
}

// isExempt reports whether limits do not apply to a write that may add some bytes: an update of the
// status, by which controllers report, or of a terminating object, whose deletion makes room.
func isExempt(info *writeinfo.Info) bool {
	return info != nil && (info.Status || info.Terminating)
}

// catchUp waits until all writes are counted that the fence does not prevent.
func (e *enforcer) catchUp(ctx context.Context, limits Limits) error {
	if e.fence.known && e.fence.limits == limits.version {
		return e.count(ctx, e.fence.revision)
	}
	// Under other limits, or none, there may have been writes without the fence.
	r, err := e.KV.Get(ctx, e.fenceKey)
	if err != nil {
		return fmt.Errorf("read %s: %w", e.fenceKey, err)
	}
	if err := e.count(ctx, r.Header.Revision); err != nil {
		return err
	}
	e.fence = fence{revision: lastWrite(r.Kvs), known: true, limits: limits.version}
	return nil
}

func lastWrite(found []*mvccpb.KeyValue) int64 {
	if len(found) == 0 {
		return 0
	}
	return found[0].ModRevision
}

func (e *enforcer) count(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, countTimeout, errors.New("that takes too long"))
	defer cancel()
	if err := e.Usage.WaitFor(ctx, revision); err != nil {
		return uncounted(e.Resource, err)
	}
	return nil
}

// fits reports whether a write needs the fence, or returns why it is forbidden.
func (e *enforcer) fits(ctx context.Context, limits Limits, w write) (fenced bool, err error) {
	growth := w.maxGrowth()
	if e.exceeded(limits, w, growth) == "" {
		return true, nil
	}
	// The count may be too high: deletes need no fence.
	r, err := e.KV.Txn(ctx).Then(clientv3.OpGet(e.fenceKey), clientv3.OpGet(w.key)).Commit()
	if err != nil {
		return false, fmt.Errorf("read %s and %s: %w", e.fenceKey, w.key, err)
	}
	found := r.Responses[1].GetResponseRange().Kvs
	if !w.finds(found) {
		return false, nil // it fails for another reason
	}
	if !w.creates() {
		growth.Bytes -= int64(len(found[0].Value))
		if growth.Bytes <= 0 {
			return false, nil
		}
	}
	if err := e.count(ctx, r.Header.Revision); err != nil {
		return false, err
	}
	e.fence.revision = lastWrite(r.Responses[0].GetResponseRange().Kvs)
	if why := e.exceeded(limits, w, growth); why != "" {
		refusals.WithContext(ctx).WithLabelValues(e.Resource.String()).Inc()
		return false, apierrors.NewForbidden(e.Resource, w.name, errors.New(why))
	}
	return true, nil
}

func (e *enforcer) exceeded(limits Limits, w write, growth usage.Usage) string {
	return exceeded(e.Usage, limits, e.Resource, w.namespace, growth)
}

// exceeded returns the message about the limit that a growth would exceed, "" if none.
func exceeded(counter Counter, limits Limits, resource schema.GroupResource, namespace string, growth usage.Usage) string {
	if why := limits.Resource.exceeded(counter.Usage(resource), growth); why != "" {
		return fmt.Sprintf("exceeded the limits of hostedresource %s, %s", resource, why)
	}
	if namespace == "" {
		return ""
	}
	if why := limits.Namespace.exceeded(counter.Namespace(resource, namespace), growth); why != "" {
		return fmt.Sprintf("exceeded the limits of hostedresource %s in namespace %s, %s", resource, namespace, why)
	}
	return ""
}

// commitFenced makes the write if the fence has not changed, otherwise the response is nil.
func (e *enforcer) commitFenced(ctx context.Context, w write) (*clientv3.TxnResponse, error) {
	guarded := slices.Concat(w.then, []clientv3.Op{clientv3.OpPut(e.fenceKey, "")})
	r, err := e.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(e.fenceKey), "=", e.fence.revision)).
		Then(clientv3.OpTxn(w.compares, guarded, w.otherwise)).
		Else(clientv3.OpGet(e.fenceKey)).
		Commit()
	if err != nil {
		e.fence = fence{} // it may have been written
		return nil, err
	}
	if !r.Succeeded {
		e.fence.revision = lastWrite(r.Responses[0].GetResponseRange().Kvs)
		return nil, nil
	}
	inner := (*clientv3.TxnResponse)(r.Responses[0].GetResponseTxn())
	inner.Header = r.Header
	if inner.Succeeded {
		inner.Responses = inner.Responses[:len(w.then)]
		e.fence.revision = r.Header.Revision
	}
	return inner, nil
}

// uncounted returns the error of a write for clients that was not made.
func uncounted(resource schema.GroupResource, cause error) error {
	err := apierrors.NewServiceUnavailable(fmt.Sprintf("the limits of hostedresource %s cannot be checked: %v", resource, cause))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, RetryAfterSeconds: 1}
	return err
}

// CheckCreate returns the error of creating another object, however small, nil if there is room.
// It uses the current count, which may be outdated: only a real write is checked exactly.
func CheckCreate(counter Counter, limits Limits, resource schema.GroupResource, namespace, name string) error {
	why := exceeded(counter, limits, resource, namespace, usage.Usage{Objects: 1, Bytes: 1})
	if why == "" {
		return nil
	}
	return apierrors.NewForbidden(resource, name, errors.New(why))
}
