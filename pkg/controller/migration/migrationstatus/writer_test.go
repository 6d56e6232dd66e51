// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migrationstatus

import (
	"errors"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newMigrations returns a client with one Migration, which refuses updates from before the last one as an API
// server does.
func newMigrations(t *testing.T) (hostingclient.MigrationInterface, *hostingv1alpha1.Migration) {
	t.Helper()
	migration := &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "uid", ResourceVersion: "1"}}
	client := fake.NewClientset(migration)
	versions := 1
	client.PrependReactor("update", "migrations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		updated := action.(clienttesting.UpdateAction).GetObject().(*hostingv1alpha1.Migration)
		if updated.ResourceVersion != strconv.Itoa(versions) {
			return true, nil, apierrors.NewConflict(hostingv1alpha1.Resource("migrations"), "m", errors.New("it has changed"))
		}
		versions++
		updated.ResourceVersion = strconv.Itoa(versions)
		return false, nil, nil
	})
	return client.HostingV1alpha1().Migrations(), migration
}

func newWriter(client hostingclient.MigrationInterface, migration *hostingv1alpha1.Migration) *Writer {
	return &Writer{Migrations: client, Migration: migration.DeepCopy()}
}

// TestFenced lets two Writers hold a Migration one after the other: as a leader that was paused, and its successor.
func TestFenced(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client, migration := newMigrations(t)
	paused, successor := newWriter(client, migration), newWriter(client, migration)
	for _, w := range []*Writer{paused, successor} {
		expect.NoError(t, w.Fence(ctx))
	}
	expect.NoError(t, successor.SetPhase(ctx, hostingv1alpha1.MigrationCopying, "copies"))
	for name, step := range map[string]func() error{
		"write": func() error { return paused.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "switches") },
		"read":  func() error { return paused.Read(ctx) },
		"check": func() error { return paused.Check(ctx) },
	} {
		if err := step(); !errors.Is(err, ErrFenced) {
			t.Errorf("%s of a Writer that was replaced: got %v, want ErrFenced", name, err)
		}
	}
	if now := expect.Get(t, client, "m"); now.Status.Phase != hostingv1alpha1.MigrationCopying {
		t.Errorf("the phase is %s, which the Writer that was replaced has written", now.Status.Phase)
	}
}

// TestConflict lets a user change the spec between two writes of the status.
func TestConflict(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, tc := range map[string]struct {
		holds bool
		want  func(error) bool
	}{
		"with a hold":    {true, func(err error) bool { return err == nil }},
		"without a hold": {false, apierrors.IsConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, migration := newMigrations(t)
			w := newWriter(client, migration)
			if tc.holds {
				expect.NoError(t, w.Fence(ctx))
			}
			current := expect.Get(t, client, "m")
			current.Spec.Confirmed = true
			_, err := client.Update(ctx, current, metav1.UpdateOptions{})
			expect.NoError(t, err)
			if err := w.Describe(ctx, ReasonWaiting, "waits"); !tc.want(err) {
				t.Errorf("got %v", err)
			}
			if !expect.Get(t, client, "m").Spec.Confirmed {
				t.Error("the change of the spec was overwritten")
			}
		})
	}
}

// TestRelease fences what was released.
func TestRelease(t *testing.T) {
	t.Parallel()
	client, migration := newMigrations(t)
	w := newWriter(client, migration)
	expect.NoError(t, errors.Join(w.Fence(t.Context()), w.Release(t.Context())))
	if w.Status.Holder != "" {
		t.Errorf("the holder is %q after the release", w.Status.Holder)
	}
	expect.NoError(t, w.Fence(t.Context()))
}

// TestCheckBesideWrites calls Check from the goroutines of a step while the status is written, for the race detector.
func TestCheckBesideWrites(t *testing.T) {
	t.Parallel()
	client, migration := newMigrations(t)
	w := newWriter(client, migration)
	expect.NoError(t, w.Fence(t.Context()))
	checked := make(chan error, 1)
	go func() {
		var err error
		for range 100 {
			err = errors.Join(err, w.Check(t.Context()))
		}
		checked <- err
	}()
	for n := range 100 {
		expect.NoError(t, w.Describe(t.Context(), ReasonWaiting, strconv.Itoa(n)))
	}
	expect.NoError(t, <-checked)
}
