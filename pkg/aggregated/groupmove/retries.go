// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// firstPause is between a switch that has failed and the next one. It doubles with each, up to longestPause:
	// clients notice each of them.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
)

// failedSwitch is a switch that was undone.
type failedSwitch struct {
	error
	// again is the time of the next one.
	again time.Time
}

// Unwrap returns why it was undone.
func (f *failedSwitch) Unwrap() error { return f.error }

// untilSwitched tries again while the switch fails because the main cluster is slow or a connection was lost. The
// copy stays, and is followed meanwhile.
func (m *moveIn) untilSwitched(ctx context.Context, try func(last *failedSwitch) error) error {
	var last *failedSwitch
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := try(last)
		if !errors.As(err, &last) || !errors.Is(err, move.ErrWatchLost) && !errors.Is(err, errNotRouted) {
			return err
		}
		last.again = time.Now().Add(pause)
		m.Event(corev1.EventTypeWarning, eventFailed, "The main cluster serves group %s again, because the switch did not succeed: %v", m.group(), err)
	}
}

// untilAgain waits after a switch that has failed.
func (m *moveIn) untilAgain(ctx context.Context, last *failedSwitch) error {
	if last == nil {
		return nil
	}
	message := fmt.Sprintf("The next switch is not before %s. The copy is kept up to date. The last switch did not succeed: %v",
		last.again.UTC().Format(time.RFC3339), last.error)
	if err := m.Describe(ctx, hostingv1alpha1.MigrationRetrying, message); err != nil {
		return err
	}
	return m.During(ctx, func(ctx context.Context) error {
		return until(ctx, func(context.Context) (bool, error) { return !time.Now().Before(last.again), nil })
	})
}
