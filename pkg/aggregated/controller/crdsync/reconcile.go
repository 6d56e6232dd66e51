// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
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
	readGroup   func(group string) (*group, error)
	mainObjects dynamic.Interface
	annex       annexObjects

	mainDefinitions  mainDefinitions
	annexDefinitions apiextensionsclient.CustomResourceDefinitionInterface
	annexMigrations  hostingclient.MigrationInterface
	// giveBack makes the main cluster serve a version itself.
	giveBack func(ctx context.Context, current *apiService) error
	// unfreeze removes the policy that freezes a group in the main cluster.
	unfreeze func(ctx context.Context, group string) error
	reporter *statusWriter
}

// reconcile performs the plan of a group.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	g, err := r.readGroup(name)
	if err != nil {
		return framework.Result{}, fmt.Errorf("read group %s: %w", name, err)
	}
	g.remaining = r.annex.remaining(ctx, g)
	var errs []error
	p := g.plan()
	if p.observe {
		g.observed = r.observe(ctx, g)
		for _, of := range g.observed {
			if of.err != nil && !apierrors.IsForbidden(of.err) {
				errs = append(errs, of.err)
			}
		}
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
	return result, errors.Join(errs...)
}

// observe looks for an object of each labelled definition in the main cluster.
func (r *reconciler) observe(ctx context.Context, g *group) map[string]observation {
	observed := map[string]observation{}
	for _, name := range g.labelled() {
		list, err := r.mainObjects.Resource(g.readable(name)).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err != nil:
			observed[name] = observation{err: fmt.Errorf("list %s in the main cluster: %w", name, err)}
		case len(list.Items) > 0:
			observed[name] = observation{object: cache.MetaObjectToName(&list.Items[0]).String()}
		default:
			observed[name] = observation{}
		}
	}
	return observed
}

// act writes definitions, Migrations, statuses and APIServices.
func (r *reconciler) act(ctx context.Context, g *group, p *plan) []error {
	errs := r.actInMain(ctx, g, p)
	for _, name := range p.withdraw {
		errs = append(errs, r.reporter.clear(ctx, name, nil))
	}
	errs = append(errs, r.order(ctx, g, p))
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
	errs = append(errs, r.reporter.report(ctx, g, p.statuses))
	if errors.Join(errs...) != nil {
		// If the clearance is still there, a returned version would be taken over again.
		return errs
	}
	for _, apiService := range p.giveBack {
		klog.FromContext(ctx).Info("Giving a version back to the main cluster", "apiService", apiService.Name)
		errs = append(errs, r.giveBack(ctx, apiService))
	}
	return errs
}

// order creates the Migration that the labels order, or deletes it.
func (r *reconciler) order(ctx context.Context, g *group, p *plan) error {
	if of := p.forget; of != nil {
		err := r.annexMigrations.Delete(ctx, of.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(of.UID)}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return wrap(err, "delete migration %s, which has completed: %w", of.Name)
	}
	if !p.move {
		return nil
	}
	klog.FromContext(ctx).Info("Moving a group that has no objects, because its definitions are labelled", "group", g.name)
	_, err := r.annexMigrations.Create(ctx, orderedMigration(g.name), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil // it has not reached the cache yet
	}
	return wrap(err, "create the migration of group %s: %w", g.name)
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
