// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrations follows Migrations for commands.
package migrations

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// EndedError is why a Migration ended that did not complete.
type EndedError struct{ Why string }

// Error implements error.
func (e *EndedError) Error() string { return e.Why }

// Follow calls show with every state of a Migration until that returns true or an error, also after
// annex was down. It returns an EndedError if the Migration is deleted before.
func Follow(ctx context.Context, annex annexclient.Interface, migration *hostingv1alpha1.Migration, show func(*hostingv1alpha1.Migration) (done bool, err error)) error {
	deleted := &EndedError{fmt.Sprintf("the Migration %s was deleted", migration.Name)}
	exists := func(store cache.Store) (bool, error) {
		for _, object := range store.List() {
			if found, ok := object.(*hostingv1alpha1.Migration); ok && found.UID == migration.UID {
				return false, nil
			}
		}
		return true, deleted
	}
	_, err := watchtools.UntilWithSync(ctx, changesOf(annex, migration.Name), &hostingv1alpha1.Migration{}, exists, func(event watch.Event) (bool, error) {
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

func changesOf(annex annexclient.Interface, name string) cache.ListerWatcher {
	migrations, selector := annex.HostingV1alpha1().Migrations(), fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return migrations.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return migrations.Watch(ctx, options)
		},
	}, annex)
}
