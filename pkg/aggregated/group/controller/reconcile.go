// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// pollInterval is the time between two reads of the main cluster for changes that no watch reports.
	pollInterval = 5 * time.Second

	// rejectedInterval is the time between two attempts with a rejected definition: the cause may lie outside of it.
	rejectedInterval = time.Minute

	// definitionsManager owns the condition DefinitionSynced, and what is written of definitions.
	definitionsManager = "annex-definitions"
	// takeoverManager owns status.takeover.
	takeoverManager = "annex-takeover"
	// apiServiceManager owns the condition Published, and writes APIServices.
	apiServiceManager = "annex-apiservice"
)

type reconciler struct {
	Config
	list func(group string) (group.Objects, error)
	// allGroups queues every group.
	allGroups func()

	synced, published framework.ConditionWriter
	gate              gate
	messages          *framework.Throttle

	mu sync.Mutex
	// A group has one worker at a time.
	memories map[schema.GroupVersion]*memory
	// hostingUpdated is the time of annex's last change of the APIService of its own group.
	hostingUpdated time.Time
}

func newReconciler(c *Controller) *reconciler {
	return &reconciler{
		Config: c.config, list: c.list, allGroups: c.enqueueAll,
		synced: framework.ConditionWriter{
			Type: hostingv1alpha1.HostedResourceDefinitionSynced, FieldManager: definitionsManager, AnnexHostedResources: c.config.AnnexHostedResources,
		},
		published: framework.ConditionWriter{
			Type: hostingv1alpha1.HostedResourcePublished, FieldManager: apiServiceManager, AnnexHostedResources: c.config.AnnexHostedResources,
		},
		gate:     gate{state: group.Gate{Why: group.No(group.ReasonWaitingForAnnex, group.NotCheckedMessage)}},
		messages: framework.NewThrottle(messageInterval, time.Now),
		memories: map[schema.GroupVersion]*memory{},
	}
}

// identity returns what distinguishes this annex, and why it is incomplete.
func (r *reconciler) identity() (group.Identity, group.Status) {
	identity := group.Identity{
		PublishedBy: hostingv1alpha1.PublishedBy(r.Service.Namespace, r.Service.Name), Service: r.Service, CABundle: r.CABundle.CABundle(),
	}
	store, err := r.AnnexStoreInformer.Lister().Get(hostingv1alpha1.DefaultStoreName)
	if err != nil {
		return identity, group.No(group.ReasonWaitingForAnnex, fmt.Sprintf("annex has no store %q yet", hostingv1alpha1.DefaultStoreName))
	}
	identity.Store = store.UID
	if len(identity.CABundle) == 0 {
		// Without a bundle the main cluster would trust its system roots.
		return identity, group.No(group.ReasonWaitingForAnnex, "It is not known yet what certificates annex is verified with")
	}
	return identity, group.Status{Status: metav1.ConditionTrue}
}

func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	var hosting time.Duration
	var errs []error
	if name == hostingVersion.Group {
		wait, err := r.reconcileHosting(ctx)
		hosting, errs = wait, append(errs, err)
	}
	s, err := r.read(name)
	if err != nil {
		return framework.Result{RequeueAfter: hosting}, errors.Join(append(errs, fmt.Errorf("read group %s: %w", name, err))...)
	}
	s.Remaining = r.remaining(ctx, s)
	p := s.Plan()
	if p.Observe {
		s.Observed = r.observe(ctx, s)
		for _, of := range s.Observed {
			if of.Err != nil && !apierrors.IsForbidden(of.Err) {
				errs = append(errs, of.Err)
			}
		}
		p = s.Plan()
	}
	again, err := r.act(ctx, s, p)
	again = sooner(again, hosting)
	for _, of := range p.Synced {
		switch of.Reason {
		case group.ReasonObjectsExist, group.ReasonForbidden, group.ReasonTerminating: // they change with objects, permissions or time
			again = sooner(again, pollInterval)
		case group.ReasonRejected:
			again = sooner(again, rejectedInterval)
		}
	}
	return framework.Result{RequeueAfter: again}, errors.Join(append(errs, err)...)
}

// read returns a group without observations.
func (r *reconciler) read(name string) (*group.State, error) {
	objects, err := r.list(name)
	if err != nil {
		return nil, err
	}
	identity, why := r.identity()
	if identity.Store == "" {
		return nil, errors.New(why.Message)
	}
	s := group.New(name, identity, objects)
	s.Gate = r.gate.get(identity.CABundle)
	if !why.IsTrue() {
		s.Gate = group.Gate{Why: why}
	}
	return s, nil
}

// observe lists one object of each labelled definition in the main cluster.
func (r *reconciler) observe(ctx context.Context, s *group.State) map[string]group.Observation {
	observed := map[string]group.Observation{}
	for name, resource := range s.Readable() {
		list, err := r.MainObjects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err != nil:
			observed[name] = group.Observation{Err: fmt.Errorf("list %s in the main cluster: %w", name, err)}
		case len(list.Items) > 0:
			observed[name] = group.Observation{Object: cache.MetaObjectToName(&list.Items[0]).String()}
		default:
			observed[name] = group.Observation{}
		}
	}
	return observed
}

// act performs a plan. It returns when to continue.
func (r *reconciler) act(ctx context.Context, s *group.State, p *group.Plan) (time.Duration, error) {
	if len(p.Withdraw)+len(p.Record)+len(p.GiveBack) > 0 {
		if err := r.checkMigration(ctx, s); err != nil {
			return 0, err
		}
	}
	// If a takeover is still recorded, a version that is given back would be taken over again.
	var errs []error
	for _, name := range p.Withdraw {
		errs = append(errs, r.writeTakeover(ctx, name, nil))
	}
	errs = append(errs, r.actInMain(ctx, s, p)...)
	errs = append(errs, r.order(ctx, p))
	for _, crd := range p.Write {
		if of, err := r.writeDefinition(ctx, s.Annex[crd.Name], crd); of != nil {
			p.Synced[crd.Name] = *of
		} else {
			errs = append(errs, err)
		}
	}
	for _, name := range p.Record {
		if err := r.record(ctx, s, s.Annex[name]); err != nil {
			p.Synced[name] = group.NotServedYet(err)
			errs = append(errs, err)
		}
	}
	again, err := r.reportSynced(ctx, s, p.Synced)
	errs = append(errs, err)
	if errors.Join(errs...) == nil {
		for _, current := range p.GiveBack {
			errs = append(errs, r.deleteAPIService(ctx, current, "Giving a version back to the main cluster"))
		}
	}
	if s.Name == hostingVersion.Group {
		return again, errors.Join(errs...)
	}
	wait, err := r.publish(ctx, s, p)
	return sooner(again, wait), errors.Join(append(errs, err)...)
}

// checkMigration reads the Migration from annex's API before a plan changes who serves the group: caches lag, after a pause
// by far.
func (r *reconciler) checkMigration(ctx context.Context, s *group.State) error {
	now, err := r.AnnexMigrations.List(ctx, metav1.ListOptions{})
	if err == nil && s.IsStale(framework.Pointers(now.Items)) {
		err = errors.New("it has advanced since")
	}
	return wrap(err, "check the Migration of group %s: %w", s.Name)
}

// order creates the Migration that the labels order, or deletes it.
func (r *reconciler) order(ctx context.Context, p *group.Plan) error {
	if of := p.Forget; of != nil {
		err := r.AnnexMigrations.Delete(ctx, of.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(of.UID)}})
		return wrap(ignoreGone(err), "delete migration %s, which has completed: %w", of.Name)
	}
	if p.Order == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Moving a group that has no objects, because its definitions are labelled", "group", p.Order.Spec.Group)
	_, err := r.AnnexMigrations.Create(ctx, p.Order, metav1.CreateOptions{FieldManager: definitionsManager})
	if apierrors.IsAlreadyExists(err) {
		return nil // it has not reached the cache yet
	}
	return wrap(err, "create the migration of group %s: %w", p.Order.Spec.Group)
}

// ignoreGone returns nil for an object that has changed or is gone: the change causes the next reconcile.
func ignoreGone(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func wrap(err error, format, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, name, err)
}

// sooner returns the shorter of two delays; zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
