// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap makes the objects that every annex has: the Store
// "default" and, where annex stands alone, the namespaces of the system.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// logInterval is how often an object that cannot be made is an error in the
// log. In between, and before, failures are what a starting server does.
const logInterval = 5 * time.Second

// Config holds what Run depends on.
type Config struct {
	// AnnexNamespaces is nil where annex has no namespaces of its own.
	AnnexNamespaces corev1client.NamespaceInterface
	AnnexStores     hostingclient.StoreInterface
	// DefaultStore says where the Store "default" is.
	DefaultStore hostingv1alpha1.StoreSpec
	// Others are made beside these.
	Others []Object
}

// Object is one of the objects to be made, or several that belong together.
type Object struct {
	// What it is, for logs and errors.
	What string
	// Make makes it where it does not exist, and fails where it cannot yet.
	Make func(ctx context.Context) error
}

// Run returns once all objects exist, or with an error when ctx is done before.
// Objects that exist already are left as they are. It tries again whatever the
// failure, at once and then ever less often: it runs while the server starts,
// and a server that cannot make these objects yet must say so, not end.
func Run(ctx context.Context, config Config) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "bootstrap")
	ctx = klog.NewContext(ctx, logger)
	started := time.Now()

	objects := append([]Object{config.storeObject()}, config.Others...)
	if config.AnnexNamespaces != nil {
		for _, name := range hosting.SystemNamespaces() {
			objects = append(objects, config.namespaceObject(name))
		}
	}
	// At once, because each costs etcd a write to disk and it joins those that
	// arrive together.
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
				_, err := c.AnnexStores.Get(ctx, hostingv1alpha1.DefaultStoreName, metav1.GetOptions{})
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

// unlessFound creates an object unless it exists. It looks first, because all but
// the very first start find the object and then cost no write.
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

// ensure tries until the object exists or ctx is done.
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
