// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// EndedError has the reason for which a Migration ended that did not complete.
type EndedError struct{ Why string }

// Error implements error.
func (e *EndedError) Error() string { return e.Why }

// follow calls show with every state of a Migration until that returns true or an error. While annex does not
// answer it calls problem with the error of each attempt. It returns an EndedError if the Migration is deleted before.
func follow(
	ctx context.Context, annex annexclient.Interface, migration *hostingv1alpha1.Migration,
	show func(*hostingv1alpha1.Migration) (done bool, err error), problem func(error),
) error {
	// client-go would log each of them.
	ctx = klog.NewContext(ctx, klog.Logger{})
	deleted := &EndedError{fmt.Sprintf("the Migration %s was deleted", migration.Name)}
	exists := func(store cache.Store) (bool, error) {
		for _, object := range store.List() {
			if found, ok := object.(*hostingv1alpha1.Migration); ok && found.UID == migration.UID {
				return false, nil
			}
		}
		return true, deleted
	}
	_, err := watchtools.UntilWithSync(ctx, changesOf(annex, migration.Name, problem), &hostingv1alpha1.Migration{}, exists, func(event watch.Event) (bool, error) {
		current, ok := event.Object.(*hostingv1alpha1.Migration)
		if !ok || current.UID != migration.UID {
			return false, nil
		}
		done, err := show(current)
		if !done && err == nil && event.Type == watch.Deleted {
			err = deleted
		}
		return done, err
	})
	return err
}

func changesOf(annex annexclient.Interface, name string, problem func(error)) cache.ListerWatcher {
	report := func(err error) {
		if err != nil && !errors.Is(err, context.Canceled) && !apierrors.IsResourceExpired(err) {
			problem(err)
		}
	}
	migrations, selector := annex.HostingV1alpha1().Migrations(), fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := migrations.List(ctx, options)
			report(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			changes, err := migrations.Watch(ctx, options)
			report(err)
			return changes, err
		},
	}, annex)
}
