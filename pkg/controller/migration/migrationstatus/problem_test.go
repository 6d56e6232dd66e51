// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migrationstatus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// fixture is a Writer whose problem changes.
type fixture struct {
	*Writer
	problem  atomic.Pointer[error]
	recorder *events.FakeRecorder
}

func newFixture(spec hostingv1alpha1.MigrationSpec) *fixture {
	migration := &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}, Spec: spec}
	f := &fixture{recorder: events.NewFakeRecorder(100)}
	f.Writer = &Writer{
		Migrations: fake.NewClientset(migration).HostingV1alpha1().Migrations(), Recorder: f.recorder, Migration: migration,
		Problem: func() error {
			if err := f.problem.Load(); err != nil {
				return *err
			}
			return nil
		},
	}
	return f
}

func (f *fixture) set(err error) { f.problem.Store(&err) }

// want fails unless the stored condition has this reason and message.
func (f *fixture) want(t *testing.T, reason, message string) {
	t.Helper()
	stored := expect.Get(t, f.Migrations, "m")
	complete := meta.FindStatusCondition(stored.Status.Conditions, hostingv1alpha1.MigrationComplete)
	if complete == nil || complete.Reason != reason || complete.Message != message {
		t.Errorf("the condition is %+v, want %s: %s", complete, reason, message)
	}
}

// recorded returns the events since the last call.
func (f *fixture) recorded() []string {
	var all []string
	for {
		select {
		case event := <-f.recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

// TestProblem: a problem that lasts is shown until it is gone.
func TestProblem(t *testing.T) {
	t.Parallel()
	manual := hostingv1alpha1.MigrationSpec{Group: "example.com", Switch: hostingv1alpha1.MigrationSwitchManual}
	for name, tc := range map[string]struct {
		run             func(context.Context, *fixture) error
		reason, message string
	}{
		"in a phase": {func(ctx context.Context, f *fixture) error {
			if err := f.SetPhase(ctx, hostingv1alpha1.MigrationVerifying, "does something"); err != nil {
				return err
			}
			return f.During(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}, "Verifying", "does something"},
		"while a user may confirm the switch": {func(ctx context.Context, f *fixture) error {
			return f.UntilConfirmed(ctx, nil)
		}, ReasonWaiting, WaitsFor(manual, time.Now())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(manual)
				ctx, end := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- tc.run(ctx, f) }()
				f.checkProblem(t, tc.reason, tc.message)
				end()
				<-ended
			})
		})
	}
}

func (f *fixture) checkProblem(t *testing.T, reason, message string) {
	t.Helper()
	const retrying = hostingv1alpha1.MigrationRetrying
	time.Sleep(time.Minute)
	f.want(t, reason, message)
	f.set(errors.New("passes"))
	time.Sleep(2 * time.Second)
	f.set(nil)
	time.Sleep(time.Minute)
	f.want(t, reason, message)
	denied := errors.New(`admission webhook "deny" denied the request`)
	f.set(fmt.Errorf("write a: %w", denied))
	time.Sleep(10 * time.Second)
	f.want(t, retrying, `Continues after an error: write a: admission webhook "deny" denied the request`)
	f.set(errors.Join(fmt.Errorf("write b and 3 more: %w", denied), errors.New("no space")))
	time.Sleep(time.Minute)
	f.want(t, retrying, `Continues after an error: write b and 3 more: admission webhook "deny" denied the request; no space`)
	f.set(fmt.Errorf("write c: %w", denied))
	time.Sleep(time.Minute)
	f.set(nil)
	time.Sleep(2 * time.Second)
	f.want(t, reason, message)
	expect.Equal(t, []string{
		`Warning Retrying Continues after an error: write a: admission webhook "deny" denied the request`,
		`Warning Retrying Continues after an error: write b and 3 more: admission webhook "deny" denied the request; no space`,
	}, f.recorded(), "one event for each cause")
}

// TestProblemIsBounded: what a webhook answers may be long, and never the same.
func TestProblemIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFixture(hostingv1alpha1.MigrationSpec{Group: "example.com"}), 0
		f.Problem = func() error { calls++; return fmt.Errorf("%d%s", calls, strings.Repeat("ä", 10_000)) }
		expect.NoError(t, f.SetPhase(t.Context(), hostingv1alpha1.MigrationCopying, "copies"))
		for range 100 {
			time.Sleep(time.Second)
			expect.NoError(t, f.tick(t.Context()))
		}
		complete := expect.Get(t, f.Migrations, "m").Status.Conditions[0]
		if n := len(complete.Message); n > maxProblem || n < maxProblem-4 {
			t.Errorf("a message of %d bytes", n)
		}
		recorded := f.recorded()
		if len(recorded) != maxProblemEvents {
			t.Errorf("%d events", len(recorded))
		}
		for _, event := range recorded {
			if len(event) > 1024 {
				t.Errorf("an event of %d bytes", len(event))
			}
		}
	})
}
