// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// probeTimeout bounds the reads of one reconcile through the main cluster.
	probeTimeout = 5 * time.Second

	// probeInterval is the delay between such reads.
	probeInterval = time.Second

	// staleStatusPeriod is the time that the main cluster gets to check an APIService
	// that was just changed. Until then its condition is about the previous state.
	staleStatusPeriod = time.Second
)

// reconcileHosting keeps the APIService of annex's own group and checks whether the main cluster reaches this annex. It
// returns the delay of the next check.
func (r *reconciler) reconcileHosting(ctx context.Context) (time.Duration, error) {
	identity, proof := r.identity()
	var again time.Duration
	var err error
	if proof.IsTrue() {
		proof, again, err = r.publishHosting(ctx, identity)
	}
	if err != nil {
		proof = group.No(group.ReasonWaitingForAnnex, fmt.Sprintf("APIService %s, which comes first: %v", group.APIServiceName(hostingVersion), err))
	}
	if proof.IsTrue() && !r.gate.get(identity.CABundle).Proven {
		if proof = r.probeAnnex(ctx, identity); !proof.IsTrue() {
			again = probeInterval
		}
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	observe(hostingVersion, proof)
	r.remember(hostingVersion).announce(ctx, proof)
	changed, settling := r.gate.observe(proof, identity.CABundle, time.Now())
	if changed {
		r.allGroups()
	}
	return sooner(again, settling), err
}

// publishHosting writes the APIService if needed, and returns its status and when to retry.
func (r *reconciler) publishHosting(ctx context.Context, identity group.Identity) (group.Status, time.Duration, error) {
	current, err := framework.IgnoreNotFound(r.MainAPIServiceInformer.Lister().Get(group.APIServiceName(hostingVersion)))
	if err != nil {
		return group.Status{}, 0, fmt.Errorf("read it from the main cluster: %w", err)
	}
	of := group.Objects{}
	if current != nil {
		of.APIServices = []*group.APIService{current}
	}
	todo := group.New(hostingVersion.Group, identity, of).PlanHosting()
	m := r.remember(hostingVersion)
	var wait time.Duration
	if todo.Operation != group.Keep {
		if wait = m.writeDelay(time.Now()); wait == 0 {
			err = r.write(ctx, m, todo)
		}
	} else if todo.Ours {
		wait, err = r.recheck(ctx, m, current, true)
	}
	if todo.Operation == group.Update {
		// The condition is about the APIService before the update.
		todo.Status = group.No(group.ReasonUnavailable, group.NotCheckedMessage)
		r.hostingUpdated = time.Now()
	}
	if todo.Status.Reason == group.ReasonUnavailable {
		todo.Status = group.No(group.ReasonWaitingForAnnex,
			fmt.Sprintf("APIService %s, which comes first: %s", group.APIServiceName(hostingVersion), todo.Status.Message))
	}
	return todo.Status, wait, err
}

// probeAnnex reads a Store through the main cluster, as any client does, and compares it with annex's own.
func (r *reconciler) probeAnnex(ctx context.Context, identity group.Identity) group.Status {
	if time.Since(r.hostingUpdated) < staleStatusPeriod {
		return group.No(group.ReasonWaitingForAnnex, group.NotCheckedMessage)
	}
	reading, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	store, err := r.MainObjects.Resource(hostingVersion.WithResource("stores")).Get(reading, hostingv1alpha1.DefaultStoreName, metav1.GetOptions{})
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Annex is not reached through the main cluster yet", "err", err)
		return group.No(group.ReasonWaitingForAnnex, fmt.Sprintf("Reading store %q through the main cluster: %v", hostingv1alpha1.DefaultStoreName, err))
	case store.GetUID() != identity.Store:
		return group.No(group.ReasonWaitingForAnnex, fmt.Sprintf(
			"Another annex answers behind Service %s/%s: its store %q has the UID %s, that of this annex has %s",
			r.Service.Namespace, r.Service.Name, hostingv1alpha1.DefaultStoreName, store.GetUID(), identity.Store))
	}
	return group.Status{Status: metav1.ConditionTrue, Reason: group.ReasonPublished, Message: "The main cluster reaches annex"}
}
