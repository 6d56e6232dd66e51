// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migrationstatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// A problem is shown once it has lasted problemPeriod. Most pass by themselves.
	problemPeriod = 3 * time.Second

	// At most maxProblemEvents different problems of an attempt get an event.
	maxProblemEvents = 10

	// Longer texts are cut. The API server refuses events with notes of more than 1024 bytes.
	maxProblem, maxNote = 4096, 1000
)

// description is the reason and the message of the condition Complete.
type description struct{ reason, message string }

func (w *Writer) describe(as description) {
	status := metav1.ConditionFalse
	if w.Status.Phase == hostingv1alpha1.MigrationCompleted {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: hostingv1alpha1.MigrationComplete, Status: status, Reason: as.reason, Message: as.message, ObservedGeneration: w.Migration.Generation,
	})
}

// tick writes the progress. It describes the problem instead of the phase as long as there is one.
func (w *Writer) tick(ctx context.Context) error {
	if w.doing.reason != "" {
		w.describe(w.problemOr(w.doing))
	}
	return w.Write(ctx)
}

// Wait writes what the Migration waits for, or a problem.
func (w *Writer) Wait(ctx context.Context, message string) error {
	w.doing = description{ReasonWaiting, message}
	return w.tick(ctx)
}

// problemOr describes a problem that lasts instead of the phase.
func (w *Writer) problemOr(doing description) description {
	var err error
	if w.Problem != nil {
		err = w.Problem()
	}
	if err == nil {
		w.problemSince = time.Time{}
		return doing
	}
	if w.problemSince.IsZero() {
		w.problemSince = time.Now()
	}
	if time.Since(w.problemSince) < problemPeriod {
		return doing
	}
	text := "Continues after an error: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	w.recordProblem(err, text)
	return description{hostingv1alpha1.MigrationRetrying, framework.Shorten(text, maxProblem)}
}

// recordProblem records an event if a cause is new. The text names the objects that it concerns, and so changes.
func (w *Writer) recordProblem(err error, text string) {
	causes := slices.DeleteFunc(causesOf(err), func(cause string) bool { return slices.Contains(w.causes, cause) })
	if len(causes) == 0 || len(w.causes) >= maxProblemEvents {
		return
	}
	w.causes = append(w.causes, causes...)
	w.Event(corev1.EventTypeWarning, hostingv1alpha1.MigrationRetrying, "%s", text)
}

// causesOf returns the texts of the innermost errors.
func causesOf(err error) []string {
	var joined interface{ Unwrap() []error }
	if inner := errors.Unwrap(err); inner != nil {
		return causesOf(inner)
	}
	if !errors.As(err, &joined) {
		return []string{err.Error()}
	}
	var causes []string
	for _, inner := range joined.Unwrap() {
		causes = append(causes, causesOf(inner)...)
	}
	return causes
}
