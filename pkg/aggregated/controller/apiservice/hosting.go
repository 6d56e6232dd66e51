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
	"github.com/annex-dev/annex/pkg/controller/framework/follow"
	"github.com/annex-dev/annex/pkg/controller/framework/queue"
)

const (
	// proofTimeout bounds one read through the main cluster.
	proofTimeout = 5 * time.Second

	// proofInterval is how often that is tried.
	proofInterval = time.Second

	// recheckPeriod is how long the main cluster is given to look again at an
	// APIService that has just been changed: until then it is called available,
	// or not, for what it was before.
	recheckPeriod = time.Second
)

// ReadStore returns a function that reads the UID of the Store "default" that the
// main cluster, asked as any user asks it, answers with.
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

// reconcileHosting keeps the APIService of annex's own group and finds out whether
// the main cluster reaches this annex.
func (r *reconciler) reconcileHosting(ctx context.Context) (queue.Result, error) {
	publication, proof := r.publication()
	var again time.Duration
	var err error
	if proof.published {
		proof, again, err = r.publishHosting(ctx, publication)
	}
	if err != nil {
		proof = notPublished(reasonWaitingForAnnex, fmt.Sprintf("APIService %s, which comes first: %v", apiServiceName(hostingVersion), err))
	}
	if proof.published && !r.gate.get().proven {
		if proof = r.prove(ctx); !proof.published {
			again = proofInterval
		}
	}
	if ctx.Err() != nil {
		return queue.Result{}, ctx.Err()
	}
	observe(hostingVersion, proof)
	r.announce(ctx, hostingVersion, proof)
	changed, settling := r.gate.observe(proof, publication.caBundle, r.now())
	if changed {
		r.allGroups()
	}
	return queue.Result{RequeueAfter: soonest(again, settling)}, err
}

// publishHosting writes the APIService if need be, and returns how it stands and
// when to come again.
func (r *reconciler) publishHosting(ctx context.Context, publication publication) (standing, time.Duration, error) {
	current, err := follow.Found(r.getAPIService(apiServiceName(hostingVersion)))
	if err != nil {
		return standing{}, 0, fmt.Errorf("read it from the main cluster: %w", err)
	}
	verdict := decideHosting(current, publication)
	var wait time.Duration
	if verdict.write != leave {
		if wait = r.writes.Wait(hostingVersion.String()); wait == 0 {
			err = r.write(ctx, hostingVersion, verdict)
		}
	} else if verdict.ours {
		wait, err = r.nudge(ctx, hostingVersion, current, true)
	}
	if verdict.write == mend {
		// What the main cluster says of it is about what it was before.
		verdict.standing = notPublished(reasonUnavailable, notCheckedMessage)
		r.hostingMended = r.now()
	}
	if verdict.standing.reason == reasonUnavailable {
		verdict.standing.reason = reasonWaitingForAnnex
		verdict.standing.message = fmt.Sprintf("APIService %s, which comes first: %s", apiServiceName(hostingVersion), verdict.standing.message)
	}
	return verdict.standing, wait, err
}

// prove reads an object through the main cluster, and compares it with annex's own.
func (r *reconciler) prove(ctx context.Context) standing {
	if r.now().Sub(r.hostingMended) < recheckPeriod {
		return notPublished(reasonWaitingForAnnex, notCheckedMessage)
	}
	reading, cancel := context.WithTimeout(ctx, proofTimeout)
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
	return standing{published: true, reason: reasonPublished, message: "The main cluster reaches annex"}
}

// publication is what all APIServices have in common, or why that is not known.
func (r *reconciler) publication() (publication, standing) {
	p := publication{service: r.service, caBundle: r.caBundle()}
	var known bool
	if p.store, known = r.storeUID(); !known {
		return p, notPublished(reasonWaitingForAnnex, fmt.Sprintf("annex has no store %q yet", hostingv1alpha1.DefaultStoreName))
	}
	if len(p.caBundle) == 0 {
		// Without one the main cluster would trust whoever its system trusts.
		return p, notPublished(reasonWaitingForAnnex, "It is not known yet what certificates annex is verified with")
	}
	return p, standing{published: true}
}

// storeUID is the UID of annex's own Store "default".
func (r *reconciler) storeUID() (types.UID, bool) {
	store, err := r.getStore(hostingv1alpha1.DefaultStoreName)
	if err != nil {
		return "", false
	}
	return store.UID, true
}
