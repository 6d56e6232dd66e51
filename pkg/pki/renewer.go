// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// checkInterval is far below the shortest life of a certificate. A timer until the next
// renewal would miss a suspended machine or a clock that was set.
const checkInterval = time.Hour

// Warnings about the CA begin caWarning before its expiry, with caReminder between them: annex cannot
// renew it without breaking every kubeconfig.
const (
	caWarning  = 90 * day
	caReminder = 7 * day
)

// Renewer keeps certificates fresh while annex runs.
type Renewer struct {
	dir      string
	opts     Options
	warnedAt time.Time
}

// NewRenewer returns a Renewer of the files of Ensure with the same arguments.
func NewRenewer(dir string, opts Options) *Renewer {
	return &Renewer{dir: dir, opts: opts.withDefaults()}
}

// Run renews until ctx ends. It logs failures and retries: the old certificate is still
// valid for months. It warns immediately if the CA expires soon.
func (r *Renewer) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	r.renew(logger)
	interval := min(checkInterval, r.opts.LeafLifetime/10)
	timer := r.opts.Clock.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		r.renew(logger)
		timer.Reset(interval)
	}
}

func (r *Renewer) renew(logger klog.Logger) {
	files, err := Ensure(r.dir, r.opts)
	if err != nil {
		logger.Error(err, "Could not check or renew certificates, will try again")
		return
	}
	logger.V(4).Info("Checked certificates", "nextRenewal", files.NextRenewal)
	r.warn(logger, files)
}

func (r *Renewer) warn(logger klog.Logger, files *Files) {
	now := r.opts.Clock.Now()
	if files.CAExpiry.Sub(now) >= caWarning || !r.warnedAt.IsZero() && now.Sub(r.warnedAt) < caReminder {
		return
	}
	r.warnedAt = now
	logger.Error(nil, "The CA expires soon, and annex will not start then: make a new one, see docs/certificates.md",
		"file", files.CACert, "expires", date(files.CAExpiry), "daysLeft", int(files.CAExpiry.Sub(now)/day))
}
