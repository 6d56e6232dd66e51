// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// pageSize is the number of objects in a page of a run.
	pageSize = 500

	// turn bounds the deletions of one resource before the status is written and another resource
	// has its turn.
	turn = 5 * time.Second
)

// errInterrupted ends a run early, because the controller stops or the plan would be outdated.
var errInterrupted = errors.New("interrupted")

// reconcile takes the next step of a retention: it checks the rules, runs, or deletes.
func (c *Controller) reconcile(ctx context.Context, name string) (framework.Result, error) {
	resource, err := framework.IgnoreNotFound(c.getHosted(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read hosted resource %s: %w", name, err)
	}
	if resource == nil || resource.Spec.Retention == nil {
		return framework.Result{}, c.forget(ctx, name, resource)
	}
	crd, err := framework.IgnoreNotFound(c.getDefinition(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read custom resource definition %s: %w", name, err)
	}
	w := c.workOf(resource)
	if id := identityOf(resource, crd); w.identity != id {
		if err := c.prepare(w, resource, crd); err != nil {
			return framework.Result{}, err
		}
		w.identity = id
	}
	var result framework.Result
	if c.mayDelete(w) {
		result = c.step(ctx, w, resource)
	} else {
		w.drop()
		w.status.NextRunTime = nil
	}
	return result, c.write(ctx, w, resource)
}

// step runs or deletes.
func (c *Controller) step(ctx context.Context, w *work, resource *hosted) framework.Result {
	again := framework.Result{RequeueAfter: time.Millisecond} // the status is written before, and other resources have their turn
	if w.plan == nil {
		c.mu.Lock()
		next := w.next(w.changed)
		w.earliest = w.lastRun.Add(w.interval())
		if !c.now().Before(next) {
			w.changed = false
		}
		c.mu.Unlock()
		if wait := next.Sub(c.now()); wait > 0 {
			w.status.NextRunTime = seconds(next)
			c.report(w)
			return framework.Result{RequeueAfter: min(wait, w.news.wait(c.now()))}
		}
		c.run(ctx, w, resource.Spec.Retention.DryRun)
		return again
	}
	if resource.Spec.Retention.DryRun {
		c.endDryRun(w)
	} else {
		c.deleteSome(ctx, w, resource.Spec.Retention)
	}
	return again
}

// mayDelete reports whether the plan of a retention is valid at present.
func (c *Controller) mayDelete(w *work) bool {
	resource, err := c.getHosted(w.name)
	if err != nil || w.valid == nil || w.valid.Reason != reasonFieldsFound || suspended(resource) != "" {
		return false
	}
	crd, err := c.getDefinition(w.name)
	return err == nil && crd.DeletionTimestamp.IsZero() && crd.UID == resource.Status.DefinitionUID && identityOf(resource, crd) == w.identity
}

// prepare reads the rules, and checks them against the schema.
func (c *Controller) prepare(w *work, resource *hosted, crd *definition) (err error) {
	w.drop()
	w.news.clear()
	w.blocked = nil
	if w.rules, w.roots, err = newRules(resource.Spec.Retention); err != nil {
		return err // validation refuses it
	}
	if crd != nil {
		if crd, err = framework.IgnoreNotFound(c.config.WholeDefinition(crd.Name)); err != nil {
			return fmt.Errorf("read the schema of %s: %w", w.name, err)
		}
	}
	if crd != nil {
		w.kind = schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		if version := versionOf(crd); version != nil {
			w.resource = schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}
		}
	}
	if c.setValid(w, resource, validCondition(resource, crd)); w.valid.Status != metav1.ConditionTrue {
		w.succeeded = nil
	}
	return nil
}

// run compares all objects with the rules.
func (c *Controller) run(ctx context.Context, w *work, dryRun bool) {
	started := c.now()
	p, err := c.compare(ctx, w, started)
	if err != nil {
		c.fail(ctx, w, "list", reasonListFailed, err)
		return
	}
	took := c.now().Sub(started)
	runSeconds.Observe(took.Seconds())
	w.begin(p, started, took, dryRun)
	klog.FromContext(ctx).V(3).Info("Compared all objects with the rules of the retention", "objects", p.objects, "targets", len(p.targets), "held", p.held, "took", took)
}

// fail ends a plan that cannot continue. The next run is later, so that a failure that remains costs
// little. An interruption is no failure.
func (c *Controller) fail(ctx context.Context, w *work, step, reason string, err error) {
	w.drop()
	if errors.Is(err, errInterrupted) {
		return
	}
	w.lastRun, w.result.failed = c.now(), 1
	failuresTotal.WithLabelValues(w.name, step).Inc()
	klog.FromContext(ctx).Info("The retention failed, trying again", "step", step, "after", retryInterval, "err", err)
	c.setSucceeded(w, false, reason, err.Error())
}

func (c *Controller) compare(ctx context.Context, w *work, now time.Time) (*plan, error) {
	p := newPlanner(w.rules, w.kind, now)
	if !w.complete {
		p.blockedBefore = w.blocked
	}
	for next := ""; ; {
		started := c.now()
		data, err := c.config.AnnexObjects.List(ctx, w.resource, pageSize, next)
		if err != nil {
			return nil, err
		}
		var objects []*object
		if objects, next, err = decodePage(data, w.roots); err != nil {
			return nil, err
		}
		for _, o := range objects {
			p.add(o)
		}
		if next == "" {
			return p.finish(), nil
		}
		if !c.rest(restFactor*c.now().Sub(started)) || !c.mayDelete(w) {
			return nil, errInterrupted
		}
	}
}
