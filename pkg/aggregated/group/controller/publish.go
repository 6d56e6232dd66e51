// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

// routingProbeInterval is the delay between probes until annex serves a version. That
// takes the main cluster milliseconds after it reports the APIService available.
const routingProbeInterval = 200 * time.Millisecond

// publish writes the APIServices of a group, and the condition Published of its HostedResources. It returns when to
// continue.
func (r *reconciler) publish(ctx context.Context, s *group.State, p *group.Plan) (again time.Duration, _ error) {
	var errs []error
	for _, current := range p.Remove {
		errs = append(errs, r.remove(ctx, s, current))
	}
	statuses, probed := map[string]group.Status{}, map[string]bool{}
	for _, v := range p.Versions {
		m := r.remember(s.GroupVersion(v.Name))
		status, wait, err := r.writeVersion(ctx, s, m, v)
		// Requests may be routed elsewhere for a while after the write.
		probed[v.Name] = v.Operation == group.Keep && err == nil && status.IsTrue()
		m.routed = m.routed && probed[v.Name]
		statuses[v.Name], again = status, sooner(again, wait)
		errs = append(errs, err)
	}
	// Probes may wait, so they are last.
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, v := range p.Versions {
		m := r.remember(s.GroupVersion(v.Name))
		if probed[v.Name] && !m.routed {
			status, wait := r.probeRouting(probing, s, m, statuses[v.Name])
			statuses[v.Name], again = status, sooner(again, wait)
		}
		observe(m.version, statuses[v.Name])
		if !v.Inherited {
			m.announce(ctx, statuses[v.Name])
		}
	}
	r.forget(s.Name, p.Versions)
	wait, err := r.reportPublished(ctx, s, statuses)
	return sooner(again, wait), errors.Join(append(errs, err)...)
}

// writeVersion writes the APIService of a version if it needs that. It returns the resulting status and when to
// retry.
func (r *reconciler) writeVersion(ctx context.Context, s *group.State, m *memory, v group.Version) (status group.Status, wait time.Duration, err error) {
	status = v.Status
	switch {
	case v.Operation != group.Keep:
		status, wait, err = r.writeInTime(ctx, s, m, v)
	case status.Reason == group.ReasonGroupInMain:
		m.reverts, m.taken = 0, time.Time{} // the count is of what annex may serve
	case v.Ours:
		wait, err = r.recheck(ctx, m, v.APIService, s.Gate.Proven)
	}
	if err != nil && !v.Ours {
		status = group.No(group.ReasonWriteFailed, fmt.Sprintf("APIService %s is not written: %v", group.APIServiceName(m.version), err))
	}
	return status, wait, err
}

// writeInTime writes the APIService of a version, unless it was written a moment ago or another writer
// keeps reverting it.
func (r *reconciler) writeInTime(ctx context.Context, s *group.State, m *memory, v group.Version) (group.Status, time.Duration, error) {
	now := time.Now()
	takes := v.Operation != group.Update
	if left, why := m.revertDelay(now); takes && left > 0 {
		return why, left, nil
	}
	if wait := m.writeDelay(now); wait > 0 {
		return v.Status, wait, nil
	}
	if takes {
		if err := r.confirm(ctx, s); err != nil {
			return v.Status, 0, err
		}
	}
	err := r.write(ctx, m, v)
	if err == nil && takes {
		m.took(now)
	}
	return v.Status, 0, err
}

// confirm reads from both APIs before it takes over requests that the main cluster may serve: the caches may not contain yet
// that a takeover was withdrawn, or that a definition was added.
func (r *reconciler) confirm(ctx context.Context, s *group.State) error {
	main, mainErr := r.MainDefinitions.List(ctx, metav1.ListOptions{})
	annex, annexErr := r.AnnexDefinitions.List(ctx, metav1.ListOptions{})
	hosted, hostedErr := r.AnnexHostedResources.List(ctx, metav1.ListOptions{})
	if err := errors.Join(mainErr, annexErr, hostedErr); err != nil {
		return fmt.Errorf("check that group %s may be taken over: %w", s.Name, err)
	}
	live := group.New(s.Name, s.Identity, group.Objects{
		Main: framework.Pointers(main.Items), Annex: framework.Pointers(annex.Items), Hosted: framework.Pointers(hosted.Items),
	})
	if inTheWay := live.NotTakenOver(); len(inTheWay) > 0 {
		return fmt.Errorf("take over group %s: the takeover of %s is no longer recorded", s.Name, inTheWay[0])
	}
	return nil
}

// write writes the APIService of a version. Its own change, or a conflicting one, causes the next reconcile.
func (r *reconciler) write(ctx context.Context, m *memory, v group.Version) error {
	what := map[group.Operation]string{
		group.Create: "Made an APIService in the main cluster", group.Update: "Put an APIService in the main cluster right",
		group.TakeOver: "Took over an APIService of the main cluster: requests for its definitions go to annex",
	}[v.Operation]
	var err error
	if v.Operation == group.Create {
		_, err = r.MainAPIServices.Create(ctx, v.APIService, metav1.CreateOptions{FieldManager: apiServiceManager})
	} else {
		_, err = r.MainAPIServices.Update(ctx, v.APIService, metav1.UpdateOptions{FieldManager: apiServiceManager})
	}
	if err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return wrap(ignoreGone(err), "write APIService %s in the main cluster: %w", v.APIService.Name)
	}
	m.written = time.Now()
	klog.FromContext(ctx).Info(what, "apiService", v.APIService.Name)
	return nil
}

// remove deletes the APIService of a version that annex no longer serves. It reads from
// annex's API, since a cache that lags would remove a group from the main cluster.
func (r *reconciler) remove(ctx context.Context, s *group.State, current *group.APIService) error {
	live, err := r.AnnexDefinitions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("check that annex does not serve %s of group %s: %w", current.Spec.Version, s.Name, err)
	}
	if group.New(s.Name, s.Identity, group.Objects{Annex: framework.Pointers(live.Items)}).IsServed(current.Spec.Version) {
		return nil
	}
	return r.deleteAPIService(ctx, current, "Deleted an APIService in the main cluster: annex no longer serves its version")
}

// deleteAPIService deletes an APIService of annex. kube-apiserver serves its version from the definitions then, if
// there are any, and makes the local APIService within a second. If it were changed to a local one, kube-apiserver
// would keep what it discovered in annex, and no resource at all once annex has forgotten the group
// (discoveryManager.AddAPIService in k8s.io/kube-aggregator). Preconditions protect one that has changed: it may
// point to annex for a new reason.
func (r *reconciler) deleteAPIService(ctx context.Context, current *group.APIService, what string) error {
	err := r.MainAPIServices.Delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: new(current.UID), ResourceVersion: new(current.ResourceVersion),
	}})
	if err == nil {
		klog.FromContext(ctx).Info(what, "apiService", current.Name)
	}
	return wrap(ignoreGone(err), "delete APIService %s in the main cluster: %w", current.Name)
}

// recheck makes the main cluster check an unavailable APIService of annex again, by
// changing an annotation. It returns when to retry.
func (r *reconciler) recheck(ctx context.Context, m *memory, current *group.APIService, allowed bool) (time.Duration, error) {
	if !group.IsUnavailable(current) {
		m.rechecks, m.nextRecheck = 0, time.Time{}
		return 0, nil
	}
	now := time.Now()
	due, wait := m.recheckDue(allowed, now)
	if !due {
		return wait, nil
	}
	updated := current.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, hostingv1alpha1.RecheckAnnotation, now.UTC().Format(time.RFC3339))
	_, err := r.MainAPIServices.Update(ctx, updated, metav1.UpdateOptions{FieldManager: apiServiceManager})
	if ignoreGone(err) != nil {
		return 0, fmt.Errorf("recheck APIService %s: %w", updated.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Requested a check of an unavailable APIService", "apiService", updated.Name, "err", err)
	_, wait = m.recheckDue(true, now)
	return wait, nil
}

// probeRouting checks that annex serves the requests for an available version, and
// returns its status and when to retry.
func (r *reconciler) probeRouting(ctx context.Context, s *group.State, m *memory, available group.Status) (group.Status, time.Duration) {
	switch by, err := r.ServedBy(ctx, m.version); {
	case err != nil:
		return group.No(group.ReasonUnavailable, fmt.Sprintf("The main cluster does not reach annex: %v", err)), probeInterval
	case by == "":
		return group.No(group.ReasonUnavailable, "The main cluster still answers for it itself: it has not taken in the APIService yet"), routingProbeInterval
	case by != s.PublishedBy:
		return group.No(group.ReasonUnavailable, fmt.Sprintf("Another annex answers, the one behind Service %s", by)), probeInterval
	}
	m.routed = true
	return available, 0
}
