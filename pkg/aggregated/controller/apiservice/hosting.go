// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// probeTimeout bounds one read through the main cluster.
	probeTimeout = 5 * time.Second

	// probeInterval is the delay between such reads.
	probeInterval = time.Second

	// staleStatusPeriod is the time that the main cluster gets to check an APIService
	// that was just changed. Until then its condition is about the previous state.
	staleStatusPeriod = time.Second
)

// ReadStore returns a function that reads the UID of the Store "default" through the main
// cluster, as any client does.
func ReadStore(main dynamic.Interface) func(ctx context.Context) (types.UID, error) {
	stores := main.Resource(hostingVersion.WithResource("stores"))
	return func(ctx context.Context) (types.UID, error) {
		store, err := stores.Get(ctx, hostingv1alpha1.DefaultStoreName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return store.GetUID(), nil
	}
}

// reconcileHosting keeps the APIService of annex's own group and checks whether the main
// cluster reaches this annex.
func (r *reconciler) reconcileHosting(ctx context.Context) (framework.Result, error) {
	tmpl, proof := r.newTemplate()
	var again time.Duration
	var err error
	if proof.published {
		proof, again, err = r.publishHosting(ctx, tmpl)
	}
	if err != nil {
		proof = notPublished(reasonWaitingForAnnex, fmt.Sprintf("APIService %s, which comes first: %v", apiServiceName(hostingVersion), err))
	}
	if proof.published && !r.gate.get().proven {
		if proof = r.probeAnnex(ctx); !proof.published {
			again = probeInterval
		}
	}
	if ctx.Err() != nil {
		return framework.Result{}, ctx.Err()
	}
	observe(hostingVersion, proof)
	r.announce(ctx, hostingVersion, proof)
	changed, settling := r.gate.observe(proof, tmpl.caBundle, r.now())
	if changed {
		r.allGroups()
	}
	return framework.Result{RequeueAfter: minNonZero(again, settling)}, err
}

// publishHosting writes the APIService if needed, and returns its status and when to
// retry.
func (r *reconciler) publishHosting(ctx context.Context, tmpl template) (status, time.Duration, error) {
	current, err := framework.IgnoreNotFound(r.getAPIService(apiServiceName(hostingVersion)))
	if err != nil {
		return status{}, 0, fmt.Errorf("read it from the main cluster: %w", err)
	}
	todo := decideHosting(current, tmpl)
	var wait time.Duration
	if todo.operation != keep {
		if wait = r.writes.Delay(hostingVersion.String()); wait == 0 {
			err = r.write(ctx, hostingVersion, todo)
		}
	} else if todo.ours {
		wait, err = r.recheck(ctx, hostingVersion, current, true)
	}
	if todo.operation == update {
		// The condition is about the APIService before the update.
		todo.status = notPublished(reasonUnavailable, notCheckedMessage)
		r.hostingUpdated = r.now()
	}
	if todo.status.reason == reasonUnavailable {
		todo.status.reason = reasonWaitingForAnnex
		todo.status.message = fmt.Sprintf("APIService %s, which comes first: %s", apiServiceName(hostingVersion), todo.status.message)
	}
	return todo.status, wait, err
}

// probeAnnex reads a Store through the main cluster, and compares it with annex's own.
func (r *reconciler) probeAnnex(ctx context.Context) status {
	if r.now().Sub(r.hostingUpdated) < staleStatusPeriod {
		return notPublished(reasonWaitingForAnnex, notCheckedMessage)
	}
	reading, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	uid, err := r.readStoreThroughMain(reading)
	own, known := r.storeUID()
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Annex is not reached through the main cluster yet", "err", err)
		return notPublished(reasonWaitingForAnnex, fmt.Sprintf("Reading store %q through the main cluster: %v", hostingv1alpha1.DefaultStoreName, err))
	case !known || uid != own:
		return notPublished(reasonWaitingForAnnex, fmt.Sprintf(
			"Another annex answers behind Service %s/%s: its store %q has the UID %s, that of this annex has %s",
			r.service.Namespace, r.service.Name, hostingv1alpha1.DefaultStoreName, uid, own))
	}
	return status{published: true, reason: reasonPublished, message: "The main cluster reaches annex"}
}

// newTemplate returns the template of all APIServices, or why it is incomplete.
func (r *reconciler) newTemplate() (template, status) {
	p := template{service: r.service, caBundle: r.caBundle()}
	var known bool
	if p.store, known = r.storeUID(); !known {
		return p, notPublished(reasonWaitingForAnnex, fmt.Sprintf("annex has no store %q yet", hostingv1alpha1.DefaultStoreName))
	}
	if len(p.caBundle) == 0 {
		// Without a bundle the main cluster would trust its system roots.
		return p, notPublished(reasonWaitingForAnnex, "It is not known yet what certificates annex is verified with")
	}
	return p, status{published: true}
}

// storeUID is the UID of annex's own Store "default".
func (r *reconciler) storeUID() (types.UID, bool) {
	store, err := r.getStore(hostingv1alpha1.DefaultStoreName)
	if err != nil {
		return "", false
	}
	return store.UID, true
}
