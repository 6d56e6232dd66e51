// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestFailedSwitches waits longer after each switch that has failed, and reports it.
func TestFailedSwitches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		migration := &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: hostingv1alpha1.MigrationSpec{Group: "example.com"},
			Status: hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationFollowing},
		}
		migrations := fake.NewClientset(migration).HostingV1alpha1().Migrations()
		recorder := events.NewFakeRecorder(10)
		status := &migrationstatus.Writer{Migrations: migrations, Recorder: recorder, Migration: migration, Status: migration.Status}
		m := &moveIn{Run: &Run{Writer: status}}
		lost := fmt.Errorf("follow widgets: %w", move.ErrWatchLost)
		var pauses []time.Duration
		ended := time.Now()
		for len(pauses) < 8 {
			expect.NoError(t, m.untilAgain(t.Context()))
			pauses = append(pauses, time.Since(ended).Round(time.Second))
			ended = time.Now()
			expect.NoError(t, m.retry(lost))
		}
		expect.Equal(t, "[0s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s]", fmt.Sprint(pauses), "pauses before switches")
		expect.Contains(t, <-recorder.Events, "Warning SwitchFailed The main cluster serves group example.com again")
		written := expect.Get(t, migrations, "m")
		complete := meta.FindStatusCondition(written.Status.Conditions, hostingv1alpha1.MigrationComplete)
		if complete.Reason != hostingv1alpha1.MigrationRetrying || written.Status.Phase != hostingv1alpha1.MigrationFollowing {
			t.Errorf("phase %s, condition %+v", written.Status.Phase, complete)
		}
		expect.Contains(t, complete.Message, ended.UTC().Format(time.RFC3339)[:16])
		expect.Contains(t, complete.Message, lost.Error())
	})
}

// TestSwitchIsBounded ends a switch whose Stores do not open, so that clients do not wait until their requests end.
func TestSwitchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &moveIn{Run: &Run{config: Config{PublishedBy: "annex", ServedBy: func(context.Context, schema.GroupVersion) (string, error) { return "annex", nil }}, Writer: &migrationstatus.Writer{
			Recorder: events.NewFakeRecorder(1), Migration: &hostingv1alpha1.Migration{Spec: hostingv1alpha1.MigrationSpec{Group: "example.com"}},
		}}}
		f := &following{workers: newWorkers(t.Context()), routed: make(chan struct{}), opened: newLatch(1)}
		began := time.Now()
		err := m.untilOpened(f)
		if took := time.Since(began); !errors.Is(err, errNotOpened) || took != openTimeout {
			t.Errorf("after %s: %v", took, err)
		}
		expect.NoError(t, m.retry(err))
		f.opened.done()
		f.routed = make(chan struct{})
		expect.NoError(t, m.untilOpened(f))
	})
}

// TestSwitchEnds does not try again what another attempt continues, or what another switch would meet again.
func TestSwitchEnds(t *testing.T) {
	t.Parallel()
	for _, err := range []error{move.ErrFenced, move.ErrNotCopied} {
		m := &moveIn{Run: &Run{}}
		if got := m.retry(err); !errors.Is(got, err) || m.pause != 0 {
			t.Errorf("after %v: %v, and a pause of %s", err, got, m.pause)
		}
	}
}

// TestGuard ends what is done by an error of the workers, whose requests then only report that they were canceled.
func TestGuard(t *testing.T) {
	t.Parallel()
	lost, deleted := errors.New("watches are forbidden"), errors.New("it was deleted")
	request := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("write the status: %w", ctx.Err())
	}
	preparing, deletion := context.WithCancelCause(t.Context())
	w := newWorkers(t.Context())
	w.run(func(context.Context) error { return lost })
	if err := w.guard(preparing, request); !errors.Is(err, lost) {
		t.Errorf("with a worker that has failed: %v", err)
	}
	w = newWorkers(t.Context())
	deletion(deleted)
	if err := w.guard(preparing, request); !errors.Is(err, deleted) {
		t.Errorf("with a Migration that was deleted: %v", err)
	}
	if err := w.guard(t.Context(), func(context.Context) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("with an error of its own: %v", err)
	}
}
