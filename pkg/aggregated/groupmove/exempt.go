// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
)

// admissionInterval is the time after which a rollback exempts annex from webhooks again: new ones may match, and tools
// that apply their configurations remove match conditions.
const admissionInterval = 10 * time.Second

// admission has the webhooks and policies that apply to a rollback's writes, and the state of the exemption.
type admission struct {
	hooks  atomic.Pointer[[]mainadmission.Match]
	exempt atomic.Bool
	failed atomic.Pointer[error]
}

// exempt exempts annex from the webhooks and policies that match the group, if the spec has exemptWebhooks.
func (r *rollback) exempt(ctx context.Context) error {
	r.admission.exempt.Store(r.Migration.Spec.ExemptWebhooks)
	if !r.Migration.Spec.ExemptWebhooks {
		return nil
	}
	err := r.config.MainCopy.Exempt(ctx, r.group())
	if errors.Is(err, mainadmission.ErrFull) && r.Status.SwitchTime == nil {
		return refuse(reasonObstacles, "%s", err)
	}
	return err
}

// probeAdmission reports which resources the main cluster refuses or changes. Some of their objects may be accepted.
func (r *rollback) probeAdmission(ctx context.Context) {
	r.readHooks(ctx, r.group())
	if hooks := r.admission.hooks.Load(); hooks == nil || len(*hooks) == 0 || r.admission.exempt.Load() {
		return
	}
	for _, of := range r.copies {
		if err := r.config.MainCopy.Probe(ctx, of); err != nil && ctx.Err() == nil {
			r.Event(corev1.EventTypeWarning, eventAdmission, "%s: %s", of.Name, r.explain(err))
		}
	}
}

// followAdmission keeps annex exempt while objects are written. The user may set exemptWebhooks meanwhile. It runs beside
// the goroutine that writes the status.
func (r *rollback) followAdmission(ctx context.Context, group string) {
	_ = untilEvery(ctx, admissionInterval, func(ctx context.Context) (bool, error) {
		migration, err := r.Current(ctx)
		if err == nil && migration.Spec.ExemptWebhooks {
			r.admission.exempt.Store(true)
			err = r.config.MainCopy.Exempt(ctx, group)
		}
		if ctx.Err() == nil {
			r.admission.failed.Store(&err)
		}
		r.readHooks(ctx, group)
		return false, nil
	})
}

func (r *rollback) readHooks(ctx context.Context, group string) {
	if hooks, err := r.config.MainCopy.Hooks(ctx, group); err == nil {
		r.admission.hooks.Store(&hooks)
	}
}

// syncProblem returns why objects are not written, or nil.
func (r *rollback) syncProblem() error {
	var errs []error
	for _, failed := range []*error{r.admission.failed.Load(), r.differing.Load()} {
		if failed != nil && *failed != nil {
			errs = append(errs, *failed)
		}
	}
	for _, of := range r.copied() {
		if err := of.syncer.Problem(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", of.Name, err))
		}
	}
	return r.explain(errors.Join(errs...))
}

// explain adds the webhooks and policies that may be the cause of an error, and what to do.
func (r *rollback) explain(err error) error {
	changed := maincopy.IsChanged(err)
	if err == nil || !changed && !maincopy.IsDenied(err) {
		return err
	}
	if hooks := r.admission.hooks.Load(); changed && hooks != nil {
		var names []string
		for _, hook := range *hooks {
			if hook.Mutating && len(names) < named {
				names = append(names, hook.String())
			}
		}
		if len(names) > 0 {
			err = fmt.Errorf("%w. These match: %s", err, strings.Join(names, ", "))
		}
	}
	if r.admission.exempt.Load() {
		return err
	}
	return fmt.Errorf("%w. To exempt annex from webhooks and policies until the end of the rollback: kubectl annex rollback %s --exempt-webhooks", err, r.group())
}
