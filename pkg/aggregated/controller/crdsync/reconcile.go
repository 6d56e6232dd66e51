// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// pollInterval is how often the main cluster is read when there is no watch for a
	// change.
	pollInterval = 5 * time.Second

	// rejectedInterval is how often a rejected definition is retried: the cause may lie
	// outside of it.
	rejectedInterval = time.Minute
)

// reconciler holds the dependencies of one reconcile. The group that readGroup returns is
// from caches and is never changed.
type reconciler struct {
	// readGroup returns the group without observations.
	readGroup func(group string) (*group, error)
	watches   *objectWatches
	annex     annexObjects
	freezer   *freezer

	mainDefinitions  mainDefinitions
	annexDefinitions apiextensionsclient.CustomResourceDefinitionInterface
	// giveBack makes the main cluster serve a version itself.
	giveBack func(ctx context.Context, current *apiService) error
	reporter *statusWriter
}

// reconcile performs the plan of a group.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	g, err := r.readGroup(name)
	if err != nil {
		return framework.Result{}, fmt.Errorf("read group %s: %w", name, err)
	}
	requests := g.watchRequests()
	g.observed = r.watches.observations(name)
	g.remaining = r.annex.remaining(ctx, g)
	var errs []error
	if movementOf(g.migration) == notMoving { // a rollback freezes resources too
		g.returning, err = r.freezer.thawUnneeded(ctx, g)
		errs = append(errs, err)
	}
	for _, request := range requests {
		of := r.watches.ensure(ctx, request)
		g.observed[request.name] = of
		if of.err != nil && !apierrors.IsForbidden(of.err) {
			errs = append(errs, of.err)
		}
	}
	p := g.plan()
	if p.needsObjectCount {
		holds, err := r.freezer.freezeIfEmpty(ctx, g)
		if err != nil {
			return framework.Result{}, fmt.Errorf("count objects of group %s in annex: %w", name, err)
		}
		g.annexHasObjects = &holds
		p = g.plan()
	}
	errs = append(errs, r.act(ctx, g, p)...)

	var result framework.Result
	for _, of := range p.statuses {
		switch {
		case of.needsPolling():
			result = sooner(result, pollInterval)
		case of.reason == reasonRejected:
			result = sooner(result, rejectedInterval)
		}
	}
	if len(p.giveBack) == 0 {
		result = sooner(result, r.watches.release(name, func(definition string) bool {
			return slices.ContainsFunc(requests, func(request watchRequest) bool { return request.name == definition })
		}))
	}
	return result, errors.Join(errs...)
}

// act writes definitions, statuses and APIServices. The status is written before a
// version is returned, so that another replica can continue.
func (r *reconciler) act(ctx context.Context, g *group, p *plan) []error {
	errs := r.actInMain(ctx, g, p)
	if len(p.giveBack) > 0 {
		errs = append(errs, r.reporter.report(ctx, g, p.statuses))
	}
	for _, name := range p.withdraw {
		errs = append(errs, r.reporter.clear(ctx, name, nil))
	}
	for _, crd := range p.write {
		if of, err := r.write(ctx, g.annex[crd.Name], crd); of != nil {
			p.statuses[crd.Name] = *of
		} else {
			errs = append(errs, err)
		}
	}
	for _, name := range p.clear {
		if err := r.clear(ctx, g, g.annex[name]); err != nil {
			p.statuses[name] = pending("Waiting until annex serves the definition: %v", err)
			errs = append(errs, err)
		}
	}
	if len(p.giveBack) == 0 {
		return append(errs, r.reporter.report(ctx, g, p.statuses))
	}
	if errors.Join(errs...) != nil {
		// If the clearance is still there, a returned version would be taken over again.
		return errs
	}
	for _, apiService := range p.giveBack {
		klog.FromContext(ctx).Info("Giving a version back to the main cluster", "apiService", apiService.Name, "reason", p.statuses[slices.Sorted(maps.Keys(p.statuses))[0]].message)
		errs = append(errs, r.giveBack(ctx, apiService))
	}
	return errs
}

// write writes a definition. If annex rejects its content, it returns a status.
func (r *reconciler) write(ctx context.Context, current, wanted *definition) (*syncStatus, error) {
	var err error
	logger := klog.FromContext(ctx).WithValues("definition", wanted.Name)
	if current == nil {
		if _, err = r.annexDefinitions.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager}); apierrors.IsAlreadyExists(err) {
			// It has not reached the cache yet.
			return nil, nil
		}
		err = wrap(err, "create custom resource definition %s in annex: %w", wanted.Name)
	} else {
		if _, err = r.annexDefinitions.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager}); apierrors.IsNotFound(err) {
			return nil, nil
		}
		err = wrap(err, "update custom resource definition %s in annex: %w", wanted.Name)
	}
	if isRefusal(err) {
		logger.V(1).Info("Annex refuses the main cluster's definition", "err", err)
		of := rejected(err)
		return &of, nil
	}
	if err == nil {
		logger.V(1).Info("Wrote the main cluster's definition into annex", "new", current == nil)
	}
	return nil, err
}

// clear permits publishing a definition in its present state, once annex serves it.
func (r *reconciler) clear(ctx context.Context, g *group, current *definition) error {
	if movementOf(g.migration) != switching { // then it is closed
		if err := r.annex.checkServed(ctx, current); err != nil {
			return err
		}
	}
	if err := r.freezer.thaw(ctx, current); err != nil {
		return err
	}
	return r.reporter.clear(ctx, current.Name, ptr.To(takeoverOf(current)))
}

// isRefusal reports whether a retry would fail too.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

func wrap(err error, format, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, name, err)
}

// sooner adds a delay to a result; zero means none.
func sooner(result framework.Result, wait time.Duration) framework.Result {
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result
}
