// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
)

const (
	// writeInterval keeps writes of one APIService apart: somebody who keeps
	// changing it back must not make annex and the main cluster spin.
	writeInterval = time.Second

	// messageInterval keeps writes of one condition apart that bring nothing but
	// another message, as an address that is different in each.
	messageInterval = 10 * time.Second
)

// reconciler holds what one pass over a group needs. What get… and look return
// comes from caches and is never changed.
type reconciler struct {
	// service and caBundle are how the main cluster reaches annex.
	service  Service
	caBundle func() []byte

	view          func(group string) (*view, error)
	getAPIService func(name string) (*apiService, error)
	getStore      func(name string) (*hostingv1alpha1.Store, error)

	// listAnnexDefinitions and listAnnexHosted ask annex itself.
	listAnnexDefinitions func(ctx context.Context) ([]*definition, error)
	listAnnexHosted      func(ctx context.Context) ([]*hosted, error)
	readStoreThroughMain func(ctx context.Context) (types.UID, error)
	servedBy             func(ctx context.Context, version schema.GroupVersion) (string, error)

	create         func(ctx context.Context, wanted *apiService) error
	update         func(ctx context.Context, wanted *apiService) error
	delete         func(ctx context.Context, name string, options metav1.DeleteOptions) error
	writeCondition func(ctx context.Context, name string, condition *metav1.Condition) error

	// allGroups has every group reconciled.
	allGroups func()

	gate     *gate
	rechecks rechecks
	routed   routedVersions
	// writes and messages pace APIServices and conditions.
	writes, messages *framework.Throttle
	now              func() time.Time
	// hostingUpdated is when annex changed the APIService of its own group last. One
	// key is never reconciled twice at a time, so nothing guards it.
	hostingUpdated time.Time

	mu sync.Mutex
	// announced is the reason with which each version was last logged.
	announced map[schema.GroupVersion]string
}

// reconcile brings the APIServices of one group to what they have to be, and has
// the HostedResources of the group say how they stand.
func (r *reconciler) reconcile(ctx context.Context, group string) (framework.Result, error) {
	if group == hostingVersion.Group {
		return r.reconcileHosting(ctx)
	}
	v, err := r.view(group)
	if err != nil {
		return framework.Result{}, fmt.Errorf("look at group %s: %w", group, err)
	}
	publication, why := r.newTemplate()
	state := r.gate.get().with(publication.caBundle)
	if !why.published {
		state = gateState{why: why}
	}

	var again time.Duration
	var errs []error
	standings := map[string]status{}
	for _, name := range v.servedVersions() {
		verdict := decide(v, name, publication, state)
		stands, wait, err := r.act(ctx, v, name, verdict, state.proven)
		standings[name] = stands
		again = minNonZero(again, wait)
		errs = append(errs, err)
	}
	for _, name := range v.staleVersions(publication) {
		errs = append(errs, r.remove(ctx, v, name))
	}
	for _, name := range v.mismatchedVersions(publication) {
		r.announce(ctx, schema.GroupVersion{Group: v.group, Version: name}, notPublished(reasonDataReplaced, dataReplacedMessage(v.apiServices[name])))
	}
	wait, err := r.report(ctx, v, standings)
	return framework.Result{RequeueAfter: minNonZero(again, wait)}, errors.Join(append(errs, err)...)
}

// act does what the verdict on a version says, and returns how it stands then and
// when to come again.
func (r *reconciler) act(ctx context.Context, v *view, name string, verdict action, proven bool) (status, time.Duration, error) {
	version := schema.GroupVersion{Group: v.group, Version: name}
	stands, wait := verdict.status, time.Duration(0)
	var err error
	if verdict.operation != keep {
		if wait = r.writes.Delay(version.String()); wait == 0 {
			err = r.confirmAndWrite(ctx, v, version, verdict)
		}
	} else if verdict.ours {
		wait, err = r.recheck(ctx, version, v.apiServices[name], proven)
	}
	if verdict.operation == keep && err == nil {
		var again time.Duration
		stands, again = r.probeRouting(ctx, version, stands)
		wait = minNonZero(wait, again)
	} else {
		// What is changed may lead elsewhere for a while.
		r.routed.set(version, false)
	}
	if err != nil && !verdict.ours {
		stands = notPublished(reasonWriteFailed, fmt.Sprintf("APIService %s is not written: %v", apiServiceName(version), err))
	}
	observe(version, stands)
	if !verdict.inherited {
		r.announce(ctx, version, stands)
	}
	return stands, wait, err
}

// confirmAndWrite asks annex itself before it sends requests to annex that the main
// cluster might answer: a clearance that was withdrawn may not be in the cache yet.
func (r *reconciler) confirmAndWrite(ctx context.Context, v *view, version schema.GroupVersion, verdict action) error {
	if verdict.operation != update && len(v.mainDefinitions) > 0 {
		live, err := r.listAnnexDefinitions(ctx)
		if err != nil {
			return fmt.Errorf("check that group %s may be taken over: %w", v.group, err)
		}
		resources, err := r.listAnnexHosted(ctx)
		if err != nil {
			return fmt.Errorf("check that group %s may be taken over: %w", v.group, err)
		}
		if inTheWay := v.notCleared(live, resources); len(inTheWay) > 0 {
			return fmt.Errorf("take over group %s: the takeover of %s is no longer cleared", v.group, inTheWay[0].Name)
		}
	}
	return r.write(ctx, version, verdict)
}

// write writes the APIService of a verdict. What it changes comes back as the next
// pass, and so does what somebody else wrote at the same time.
func (r *reconciler) write(ctx context.Context, version schema.GroupVersion, verdict action) error {
	wanted, do, what := verdict.apiService, r.update, "Put an APIService in the main cluster right"
	switch verdict.operation {
	case create:
		do, what = r.create, "Made an APIService in the main cluster"
	case takeOver:
		what = "Took over an APIService of the main cluster: requests for its definitions go to annex"
	}
	err := do(ctx, wanted)
	switch {
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("write APIService %s in the main cluster: %w", wanted.Name, err)
	}
	r.writes.Mark(version.String())
	klog.FromContext(ctx).Info(what, "apiService", wanted.Name)
	return nil
}

// remove deletes the APIService of a version that annex does not serve any more.
// It asks annex itself, since a cache that lags would take a group off the main
// cluster, and deletes only what it has looked at.
func (r *reconciler) remove(ctx context.Context, v *view, name string) error {
	version := schema.GroupVersion{Group: v.group, Version: name}
	current := v.apiServices[name]
	live, err := r.listAnnexDefinitions(ctx)
	if err != nil {
		return fmt.Errorf("check that annex does not serve %s: %w", version, err)
	}
	if definedIn(live, version) {
		return nil
	}
	err = r.delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID:             ptr.To(current.UID),
		ResourceVersion: ptr.To(current.ResourceVersion),
	}})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete APIService %s in the main cluster: %w", current.Name, err)
	}
	r.forget(version)
	klog.FromContext(ctx).Info("Deleted an APIService in the main cluster: annex does not serve its version any more", "apiService", current.Name)
	return nil
}

// announce logs when a version comes to stand otherwise than before.
func (r *reconciler) announce(ctx context.Context, version schema.GroupVersion, stands status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.announced[version]
	if before == stands.reason {
		return
	}
	r.announced[version] = stands.reason
	logger := klog.FromContext(ctx).WithValues("groupVersion", version, "reason", stands.reason, "message", stands.message)
	switch {
	case stands.reason == reasonForeignAPIService:
		logger.Error(nil, "The main cluster sends requests elsewhere, and annex leaves that alone")
	case stands.published:
		logger.Info("The main cluster sends requests to annex")
	case before == reasonPublished:
		logger.Info("The main cluster does not send requests to annex any more")
	case stands.reason == reasonGroupInMain || stands.reason == reasonDataReplaced:
		logger.Info("The main cluster does not send requests to annex")
	default:
		logger.V(2).Info("The main cluster does not send requests to annex yet")
	}
}

func (r *reconciler) forget(version schema.GroupVersion) {
	r.writes.Forget(version.String())
	r.rechecks.forget(version)
	r.routed.set(version, false)
	forgetMetric(version)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.announced, version)
}

// minNonZero returns the shorter of two waits, of which zero is none.
func minNonZero(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// report has the HostedResources of a group say how its versions stand. It returns
// when to look again at those whose news were put off.
func (r *reconciler) report(ctx context.Context, v *view, standings map[string]status) (time.Duration, error) {
	var again time.Duration
	var errs []error
	for _, resource := range v.hosted {
		before := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		after := publishedCondition(resource, v, standings)
		if !conditions.SetTransitionTime(&after, before, r.now()) {
			continue
		}
		if !conditions.IsUrgent(&after, before) {
			if wait := r.messages.Delay(resource.Name); wait > 0 {
				again = minNonZero(again, wait)
				continue
			}
		}
		if err := r.writeCondition(ctx, resource.Name, &after); err != nil {
			errs = append(errs, err)
			continue
		}
		r.messages.Mark(resource.Name)
	}
	return again, errors.Join(errs...)
}

// publishedCondition sums up the versions of one resource: it is published if all
// that are served are, and otherwise says why the first is not.
func publishedCondition(resource *hosted, v *view, standings map[string]status) metav1.Condition {
	condition := metav1.Condition{
		Type:               hostingv1alpha1.HostedResourcePublished,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: resource.Generation,
		Reason:             reasonNotServed,
		Message:            fmt.Sprintf("annex has no CustomResourceDefinition %q that serves a version", resource.Name),
	}
	index := slices.IndexFunc(v.annexDefinitions, func(crd *definition) bool { return crd.Name == resource.Name })
	if index < 0 {
		return condition
	}
	versions := byMaturity(versionsServedBy(v.annexDefinitions[index]))
	for _, version := range versions {
		stands := standings[version]
		if !stands.published {
			condition.Reason = stands.reason
			condition.Message = version + ": " + stands.message
			return condition
		}
	}
	if len(versions) > 0 {
		condition.Status = metav1.ConditionTrue
		condition.Reason = reasonPublished
		condition.Message = "The main cluster sends requests to annex: " + strings.Join(versions, ", ")
	}
	return condition
}

// published is told by the replica that runs the controllers, and by no other.
var published = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "apiservice",
	Name:           "published",
	Help:           "Whether the main cluster sends requests for a group version to annex (1) or not (0).",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "version"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(published) })

// observe tells how a version stands.
func observe(version schema.GroupVersion, stands status) {
	value := 0.0
	if stands.published {
		value = 1
	}
	published.WithLabelValues(version.Group, version.Version).Set(value)
}

// forgetMetric tells nothing of a version any more.
func forgetMetric(version schema.GroupVersion) {
	published.DeleteLabelValues(version.Group, version.Version)
}
