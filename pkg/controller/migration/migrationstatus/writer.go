// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrationstatus writes the status and the events of a Migration, for what runs it: the
// controller of Migrations, and for groups pkg/aggregated/groupmove.
package migrationstatus

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// ReasonWaiting is the reason of a Migration that waits for another one or for a user.
const ReasonWaiting = "Waiting"

// interval is the time between two writes of the progress.
const interval = time.Second

// ErrFenced means that another Writer has taken the Migration over.
var ErrFenced = move.ErrFenced

// Refusal is an error that ends a Migration for good.
type Refusal = move.Refusal

// Refuse returns a *Refusal.
func Refuse(reason, format string, arguments ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// Writer writes the status of one Migration. One goroutine uses it.
type Writer struct {
	Migrations hostingclient.MigrationInterface
	Recorder   events.EventRecorder
	// Migration is the Migration as it was read or written last.
	Migration *hostingv1alpha1.Migration
	// Status will be written next.
	Status hostingv1alpha1.MigrationStatus
	// Progress adds the progress to Status. It may be nil.
	Progress func(*hostingv1alpha1.MigrationStatus)
	// Problem returns why the current phase does not advance, or nil. It may be nil.
	Problem func() error

	doing description
	// problemSince is zero without a problem. causes had an event, and get no other.
	problemSince time.Time
	causes       []string

	// held is the Migration as it was when the Writer fenced the others, or nil. It is not replaced until the Writer
	// releases it, so that Current needs no lock.
	held *hostingv1alpha1.Migration
}

// Read reads the Migration from the server: a cache that lags would repeat a step. It returns ErrFenced once
// another Writer has fenced this one.
func (w *Writer) Read(ctx context.Context) error {
	current, err := w.Current(ctx)
	if err == nil {
		w.Migration, w.Status = current, *current.Status.DeepCopy()
	}
	return err
}

// Check returns ErrFenced once another Writer has fenced this one. Any goroutine may call it.
func (w *Writer) Check(ctx context.Context) error {
	_, err := w.Current(ctx)
	return err
}

// Current returns the Migration as the server has it, and leaves the Writer as it is. It returns ErrFenced once
// another Writer has fenced this one. Any goroutine may call it after Fence.
func (w *Writer) Current(ctx context.Context) (*hostingv1alpha1.Migration, error) {
	of := w.held
	if of == nil {
		of = w.Migration
	}
	current, err := w.Migrations.Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read migration %s: %w", of.Name, err)
	}
	if w.held != nil && (current.UID != of.UID || current.Status.Holder != of.Status.Holder) {
		return nil, fmt.Errorf("migration %s: %w", of.Name, ErrFenced)
	}
	return current, nil
}

// Fence fences all other Writers of the Migration, and reads what they have written.
func (w *Writer) Fence(ctx context.Context) error { return w.hold(ctx, string(uuid.NewUUID())) }

// Release ends the hold of a Writer that has done nothing.
func (w *Writer) Release(ctx context.Context) error { return w.hold(ctx, "") }

func (w *Writer) hold(ctx context.Context, holder string) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := w.Current(ctx)
		if err != nil {
			return err
		}
		current.Status.Holder = holder
		if current, err = w.Migrations.UpdateStatus(ctx, current, metav1.UpdateOptions{}); err != nil {
			return err
		}
		w.Migration, w.Status, w.held = current, *current.Status.DeepCopy(), nil
		if holder != "" {
			w.held = current
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fence other attempts at migration %s: %w", w.Migration.Name, err)
	}
	return nil
}

// SetPhase begins a phase.
func (w *Writer) SetPhase(ctx context.Context, phase hostingv1alpha1.MigrationPhase, message string) error {
	w.Status.Phase = phase
	return w.Describe(ctx, string(phase), message)
}

// Describe writes what the Migration does.
func (w *Writer) Describe(ctx context.Context, reason, message string) error {
	w.doing = description{reason, message}
	w.describe(w.doing)
	return w.Write(ctx)
}

// Step runs do in a phase, and writes its progress and its problems.
func (w *Writer) Step(ctx context.Context, phase hostingv1alpha1.MigrationPhase, message string, do func(context.Context) error) error {
	if err := w.SetPhase(ctx, phase, message); err != nil {
		return err
	}
	return w.During(ctx, do)
}

// During runs do in a phase that was set before, and writes its progress and its problems.
func (w *Writer) During(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		case <-tick.C:
			if err := w.tick(ctx); err != nil {
				klog.FromContext(ctx).V(2).Info("Failed to write the progress of a migration", "err", err)
			}
		}
	}
}

// Write writes the status with the progress, if it changed. It returns ErrFenced once another Writer has taken
// over.
func (w *Writer) Write(ctx context.Context) error {
	if w.Progress != nil {
		w.Progress(&w.Status)
	}
	if phase := w.Status.Phase; phase != hostingv1alpha1.MigrationFollowing && phase != hostingv1alpha1.MigrationVerifying {
		w.Status.Lag = nil
	}
	if equality.Semantic.DeepEqual(w.Status, w.Migration.Status) {
		return nil
	}
	// Without a hold, another Writer may have written the status that this one would replace.
	again := func(err error) bool { return w.held != nil && apierrors.IsConflict(err) }
	err := retry.OnError(retry.DefaultRetry, again, func() error {
		updated := w.Migration.DeepCopy()
		updated.Status = *w.Status.DeepCopy()
		written, err := w.Migrations.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		switch {
		case err == nil:
			w.Migration = written
		case again(err): // a user has changed the spec, or another Writer has fenced this one
			current, getErr := w.Current(ctx)
			if getErr != nil {
				return getErr
			}
			w.Migration = current
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write status of migration %s: %w", w.Migration.Name, err)
	}
	return nil
}

// Finish writes the result, and an event about it.
func (w *Writer) Finish(ctx context.Context, phase hostingv1alpha1.MigrationPhase, reason, message string) error {
	now := metav1.Now()
	w.Status.CompletionTime, w.Status.Phase = &now, phase
	if err := w.Describe(ctx, reason, message); err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if phase == hostingv1alpha1.MigrationFailed {
		kind = corev1.EventTypeWarning
	}
	w.Event(kind, string(phase), "%s", message)
	return nil
}

// Event records an event about the Migration.
func (w *Writer) Event(kind, reason, note string, arguments ...any) {
	w.Recorder.Eventf(w.Migration, nil, kind, reason, "Migrate", "%s", framework.Shorten(fmt.Sprintf(note, arguments...), maxNote))
}

// UntilConfirmed waits until the switch is allowed. changed receives after changes of the Migration.
func (w *Writer) UntilConfirmed(ctx context.Context, changed <-chan struct{}) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := w.Read(ctx); err != nil {
			return err
		}
		message := WaitsFor(w.Migration.Spec, time.Now())
		if message == "" {
			return nil
		}
		w.Status.Phase = hostingv1alpha1.MigrationFollowing
		if err := w.Wait(ctx, message); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WaitsFor returns what a verified Migration waits for before the switch.
func WaitsFor(spec hostingv1alpha1.MigrationSpec, now time.Time) string {
	const ready = "The copy is verified and kept up to date. "
	switch {
	case spec.Switch == hostingv1alpha1.MigrationSwitchManual && !spec.Confirmed:
		return ready + "Set spec.confirmed to true to switch"
	case spec.NotBefore != nil && now.Before(spec.NotBefore.Time):
		return ready + "The switch is not before " + spec.NotBefore.UTC().Format(time.RFC3339)
	}
	return ""
}
