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

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

const (
	// writeInterval is the minimum time between writes of one APIService, so that another
	// writer that reverts them cannot cause a busy loop.
	writeInterval = time.Second

	// messageInterval is the minimum time between writes of one condition that change
	// only its message, which may contain changing addresses.
	messageInterval = 10 * time.Second
)

// reconciler holds the dependencies of one reconcile. The objects that get… and view
// return are from caches and are never changed.
type reconciler struct {
	service  Service
	caBundle func() []byte

	view          func(group string) (*view, error)
	getAPIService func(name string) (*apiService, error)
	getStore      func(name string) (*hostingv1alpha1.Store, error)

	// These read from annex's API, not from caches.
	annexDefinitions     apiextensionsclient.CustomResourceDefinitionInterface
	annexHostedResources hostingclient.HostedResourceInterface
	readStoreThroughMain func(ctx context.Context) (types.UID, error)
	servedBy             func(ctx context.Context, version schema.GroupVersion) (string, error)

	mainAPIServices aggregatorclient.APIServiceInterface
	writeCondition  func(ctx context.Context, name string, condition *metav1.Condition) error

	// allGroups queues every group.
	allGroups func()

	gate     *gate
	rechecks rechecks
	reverts  reverts
	routed   routedVersions
	// writes and messages throttle APIServices and conditions.
	writes, messages *framework.Throttle
	now              func() time.Time
	// hostingUpdated is when annex last changed the APIService of its own group. It needs
	// no lock: a key has one worker at a time.
	hostingUpdated time.Time

	mu sync.Mutex
	// announced is the last logged reason of each version.
	announced map[schema.GroupVersion]string
}

// reconcile writes the APIServices of a group, and the condition Published of its
// HostedResources.
func (r *reconciler) reconcile(ctx context.Context, group string) (framework.Result, error) {
	if group == hostingVersion.Group {
		return r.reconcileHosting(ctx)
	}
	v, err := r.view(group)
	if err != nil {
		return framework.Result{}, fmt.Errorf("read group %s: %w", group, err)
	}
	tmpl, why := r.newTemplate()
	state := r.gate.get().with(tmpl.caBundle)
	if !why.published {
		state = gateState{why: why}
	}

	var again time.Duration
	var errs []error
	statuses := map[string]status{}
	for _, name := range v.servedVersions() {
		todo := decide(v, name, tmpl, state)
		result, wait, err := r.act(ctx, v, name, todo, state.proven)
		statuses[name] = result
		again = minNonZero(again, wait)
		errs = append(errs, err)
	}
	for _, name := range v.staleVersions(tmpl) {
		errs = append(errs, r.remove(ctx, v, name))
	}
	for _, name := range v.mismatchedVersions(tmpl) {
		r.announce(ctx, schema.GroupVersion{Group: v.group, Version: name}, notPublished(reasonDataReplaced, dataReplacedMessage(v.apiServices[name])))
	}
	wait, err := r.report(ctx, v, statuses)
	return framework.Result{RequeueAfter: minNonZero(again, wait)}, errors.Join(append(errs, err)...)
}

// act performs an action, and returns the resulting status and when to retry.
func (r *reconciler) act(ctx context.Context, v *view, name string, todo action, proven bool) (status, time.Duration, error) {
	version := schema.GroupVersion{Group: v.group, Version: name}
	result, wait := todo.status, time.Duration(0)
	var err error
	switch {
	case todo.operation != keep:
		result, wait, err = r.writeInTime(ctx, v, version, todo)
	case todo.status.reason == reasonGroupInMain:
		r.reverts.forget(version)
	case todo.ours:
		wait, err = r.recheck(ctx, version, v.apiServices[name], proven)
	}
	if todo.operation == keep && err == nil {
		var again time.Duration
		result, again = r.probeRouting(ctx, version, result)
		wait = minNonZero(wait, again)
	} else {
		// Requests may be routed elsewhere for a while after the write.
		r.routed.set(version, false)
	}
	if err != nil && !todo.ours {
		result = notPublished(reasonWriteFailed, fmt.Sprintf("APIService %s is not written: %v", apiServiceName(version), err))
	}
	observe(version, result)
	if !todo.inherited {
		r.announce(ctx, version, result)
	}
	return result, wait, err
}

// writeInTime writes the APIService of an action, unless it was written a moment ago or another writer
// keeps reverting it. It returns the resulting status and when to retry.
func (r *reconciler) writeInTime(ctx context.Context, v *view, version schema.GroupVersion, todo action) (status, time.Duration, error) {
	takes := todo.operation == create || todo.operation == takeOver
	if left, why := r.reverts.wait(version, r.now()); takes && left > 0 {
		return why, left, nil
	}
	if wait := r.writes.Delay(version.String()); wait > 0 {
		return todo.status, wait, nil
	}
	err := r.confirmAndWrite(ctx, v, version, todo)
	if err == nil && takes {
		r.reverts.taken(version, r.now())
	}
	return todo.status, 0, err
}

// confirmAndWrite reads from annex's API before it takes over requests that the main
// cluster may serve: the cache may not contain yet that a clearance was withdrawn.
func (r *reconciler) confirmAndWrite(ctx context.Context, v *view, version schema.GroupVersion, todo action) error {
	if todo.operation != update && len(v.mainDefinitions) > 0 {
		live, err := r.annexDefinitions.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("check that group %s may be taken over: %w", v.group, err)
		}
		resources, err := r.annexHostedResources.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("check that group %s may be taken over: %w", v.group, err)
		}
		if inTheWay := v.notCleared(framework.Pointers(live.Items), framework.Pointers(resources.Items)); len(inTheWay) > 0 {
			return fmt.Errorf("take over group %s: the takeover of %s is no longer cleared", v.group, inTheWay[0].Name)
		}
	}
	return r.write(ctx, version, todo)
}

// write writes the APIService of an action. Its own change, or a conflicting one, causes
// the next reconcile.
func (r *reconciler) write(ctx context.Context, version schema.GroupVersion, todo action) error {
	wanted, what := todo.apiService, "Put an APIService in the main cluster right"
	var err error
	switch todo.operation {
	case create:
		what = "Made an APIService in the main cluster"
		_, err = r.mainAPIServices.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
	case takeOver:
		what = "Took over an APIService of the main cluster: requests for its definitions go to annex"
		fallthrough
	default:
		_, err = r.mainAPIServices.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager})
	}
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

// remove deletes the APIService of a version that annex no longer serves. It reads from
// annex's API, since a cache that lags would remove a group from the main cluster.
// Preconditions protect an APIService that has changed.
func (r *reconciler) remove(ctx context.Context, v *view, name string) error {
	version := schema.GroupVersion{Group: v.group, Version: name}
	current := v.apiServices[name]
	live, err := r.annexDefinitions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("check that annex does not serve %s: %w", version, err)
	}
	if definedIn(framework.Pointers(live.Items), version) {
		return nil
	}
	err = r.mainAPIServices.Delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
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
	klog.FromContext(ctx).Info("Deleted an APIService in the main cluster: annex no longer serves its version", "apiService", current.Name)
	return nil
}

// announce logs a version whose reason changes.
func (r *reconciler) announce(ctx context.Context, version schema.GroupVersion, result status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.announced[version]
	if before == result.reason {
		return
	}
	r.announced[version] = result.reason
	logger := klog.FromContext(ctx).WithValues("groupVersion", version, "reason", result.reason, "message", result.message)
	switch {
	case result.reason == reasonForeignAPIService:
		logger.Error(nil, "The main cluster sends requests elsewhere, and annex leaves that alone")
	case result.published:
		logger.Info("The main cluster sends requests to annex")
	case before == reasonPublished:
		logger.Info("The main cluster no longer sends requests to annex")
	case result.reason == reasonGroupInMain || result.reason == reasonDataReplaced:
		logger.Info("The main cluster does not send requests to annex")
	default:
		logger.V(2).Info("The main cluster does not send requests to annex yet")
	}
}

func (r *reconciler) forget(version schema.GroupVersion) {
	r.writes.Forget(version.String())
	r.rechecks.forget(version)
	r.reverts.forget(version)
	r.routed.set(version, false)
	forgetMetric(version)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.announced, version)
}

// minNonZero returns the shorter of two delays; zero means none.
func minNonZero(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// report writes the conditions of a group's HostedResources. It returns when to write
// those that were throttled.
func (r *reconciler) report(ctx context.Context, v *view, statuses map[string]status) (time.Duration, error) {
	var again time.Duration
	var errs []error
	for _, resource := range v.hosted {
		before := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		after := publishedCondition(resource, v, statuses)
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

// publishedCondition is true if all served versions are published. Otherwise it has the
// reason of the first that is not.
func publishedCondition(resource *hosted, v *view, statuses map[string]status) metav1.Condition {
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
		result := statuses[version]
		if !result.published {
			condition.Reason = result.reason
			condition.Message = version + ": " + result.message
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

// published is reported only by the replica that runs the controllers.
var published = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "apiservice",
	Name:           "published",
	Help:           "Whether the main cluster sends requests for a group version to annex (1) or not (0).",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "version"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(published) })

func observe(version schema.GroupVersion, result status) {
	value := 0.0
	if result.published {
		value = 1
	}
	published.WithLabelValues(version.Group, version.Version).Set(value)
}

func forgetMetric(version schema.GroupVersion) {
	published.DeleteLabelValues(version.Group, version.Version)
}
