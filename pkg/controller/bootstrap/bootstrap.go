// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap creates the objects that every annex has: the Store "default" and, in
// a standalone annex, the system namespaces.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// logInterval is how often a failure to create an object is logged as an error. Failures
// in between are expected while a server starts.
const logInterval = 5 * time.Second

// Config holds the dependencies of Run.
type Config struct {
	// AnnexNamespaces is nil where annex serves no namespaces.
	AnnexNamespaces corev1client.NamespaceInterface
	AnnexStores     hostingclient.StoreInterface
	// DefaultStore is the spec of the Store "default".
	DefaultStore hostingv1alpha1.StoreSpec
	// Others are created in addition.
	Others []Object
}

// Object is an object to create, or several that belong together.
type Object struct {
	// What names it in logs and errors.
	What string
	// Make creates it if it does not exist. It may be retried.
	Make func(ctx context.Context) error
}

// Run returns once all objects exist, or with an error when ctx is done first. Existing
// objects stay unchanged. It retries all failures with backoff: it runs while the server
// starts, which must report an object that it cannot create, and not exit.
func Run(ctx context.Context, config Config) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "bootstrap")
	ctx = klog.NewContext(ctx, logger)
	started := time.Now()

	objects := append([]Object{config.storeObject()}, config.Others...)
	if config.AnnexNamespaces != nil {
		for _, name := range hostingv1alpha1.SystemNamespaces() {
			objects = append(objects, config.namespaceObject(name))
		}
	}
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

func (c Config) namespaceObject(name string) Object {
	return Object{
		What: "namespace " + name,
		Make: unlessFound(
			func(ctx context.Context) error {
				_, err := c.AnnexNamespaces.Get(ctx, name, metav1.GetOptions{})
				return err
			},
			func(ctx context.Context) error {
				_, err := c.AnnexNamespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				return err
			},
		),
	}
}

func (c Config) storeObject() Object {
	return Object{
		What: "store " + hostingv1alpha1.DefaultStoreName,
		Make: unlessFound(
			func(ctx context.Context) error {
				store, err := c.AnnexStores.Get(ctx, hostingv1alpha1.DefaultStoreName, metav1.GetOptions{})
				if err != nil || !c.setEtcd(&store.Spec) {
					return err
				}
				_, err = c.AnnexStores.Update(ctx, store, metav1.UpdateOptions{})
				return err
			},
			func(ctx context.Context) error {
				_, err := c.AnnexStores.Create(ctx, &hostingv1alpha1.Store{
					ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.DefaultStoreName},
					Spec:       *c.DefaultStore.DeepCopy(),
				}, metav1.CreateOptions{})
				return err
			},
		),
	}
}

// setEtcd sets the etcd of the Store "default", which flags may have changed, and reports whether
// it was another.
func (c Config) setEtcd(spec *hostingv1alpha1.StoreSpec) (changed bool) {
	before, used := spec.DeepCopy(), c.DefaultStore.DeepCopy()
	spec.Embedded = used.Embedded
	switch {
	case spec.Etcd == nil || used.Etcd == nil:
		spec.Etcd = used.Etcd
	default:
		spec.Etcd.Endpoints, spec.Etcd.KeyPrefix = used.Etcd.Endpoints, used.Etcd.KeyPrefix
	}
	return !equality.Semantic.DeepEqual(before, spec)
}

// unlessFound reads first, because every start except the first finds the object, and a
// read is cheaper than a write.
func unlessFound(get, create func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		err := get(ctx)
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := create(ctx); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}
}

// ensure retries until the object exists or ctx is done.
func (o Object) ensure(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	backoff := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 1000, Cap: 250 * time.Millisecond}
	lastComplaint := time.Now()
	var lastErr error
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		if lastErr = o.Make(ctx); lastErr == nil {
			return true, nil
		}
		if ctx.Err() == nil && time.Since(lastComplaint) >= logInterval {
			lastComplaint = time.Now()
			logger.Error(lastErr, "A system object cannot be made, trying again", "object", o.What)
		} else {
			logger.V(4).Info("A system object cannot be made yet", "object", o.What, "err", lastErr)
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", o.What, errors.Join(err, lastErr))
	}
	return nil
}
