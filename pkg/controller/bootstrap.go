// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// A failure to create a system object is logged as an error once per logInterval. Failures
// are expected while a server starts.
const logInterval = 5 * time.Second

// SystemObject is an object that exists in every annex, or several that belong together.
type SystemObject struct {
	// What names it in logs and errors.
	What string
	// Make creates it if it does not exist. It is retried until it succeeds.
	Make func(ctx context.Context) error
}

// Bootstrap creates the system objects, and returns once all exist, or with an error when
// ctx is done first. It retries all failures with backoff: it runs while the server
// starts, which must report an object that it cannot create, and not exit.
func Bootstrap(ctx context.Context, config Config) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "bootstrap")
	ctx = klog.NewContext(ctx, logger)
	started := time.Now()

	objects := append(config.Mode.SystemObjects(config), defaultStore(config.AnnexHosting.HostingV1alpha1().Stores(), config.DefaultStore))
	// Concurrently: etcd writes requests that arrive together to disk at once.
	errs := make([]error, len(objects))
	var running sync.WaitGroup
	for i, o := range objects {
		running.Go(func() { errs[i] = o.ensure(ctx) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	logger.V(2).Info("System objects exist", "duration", time.Since(started))
	return nil
}

// defaultStore is the Store "default". Its etcd follows the flags, which may have changed.
func defaultStore(stores hostingclient.StoreInterface, spec hostingv1alpha1.StoreSpec) SystemObject {
	return SystemObject{
		What: "store " + hostingv1alpha1.DefaultStoreName,
		Make: func(ctx context.Context) error {
			store, err := GetOrCreate(ctx, stores, &hostingv1alpha1.Store{
				ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.DefaultStoreName}, Spec: *spec.DeepCopy(),
			})
			if err != nil || !setEtcd(&store.Spec, spec.DeepCopy()) {
				return err
			}
			_, err = stores.Update(ctx, store, metav1.UpdateOptions{})
			return err
		},
	}
}

// setEtcd sets the etcd of a Store, and reports whether it was another.
func setEtcd(spec, used *hostingv1alpha1.StoreSpec) (changed bool) {
	before := spec.DeepCopy()
	spec.Embedded = used.Embedded
	switch {
	case spec.Etcd == nil || used.Etcd == nil:
		spec.Etcd = used.Etcd
	default:
		spec.Etcd.Endpoints, spec.Etcd.KeyPrefix = used.Etcd.Endpoints, used.Etcd.KeyPrefix
	}
	return !equality.Semantic.DeepEqual(before, spec)
}

// GetOrCreate returns an object, and creates it if it does not exist. It reads first,
// because every start except the first finds the object, and a read is cheaper.
func GetOrCreate[T metav1.Object](ctx context.Context, objects interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}, object T) (T, error) {
	stored, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return stored, err
	}
	stored, err = objects.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	}
	return stored, err
}

// ensure retries until the object exists or ctx is done.
func (o SystemObject) ensure(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	backoff := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 1000, Cap: 250 * time.Millisecond}
	lastLogged := time.Now()
	var lastErr error
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		if lastErr = o.Make(ctx); lastErr == nil {
			return true, nil
		}
		if ctx.Err() == nil && time.Since(lastLogged) >= logInterval {
			lastLogged = time.Now()
			logger.Error(lastErr, "A system object cannot be created, trying again", "object", o.What)
		} else {
			logger.V(4).Info("A system object cannot be created yet", "object", o.What, "err", lastErr)
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", o.What, errors.Join(err, lastErr))
	}
	return nil
}
