// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injectionprofile is the controller of InjectionProfiles: it reports whether a profile fits
// the definitions of its targets, also when these are created or change after the profile.
package injectionprofile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/injection"
)

// ControllerName names the controller in logs, metrics and events.
const ControllerName = "annex-injection"

// Reasons of the condition Ready.
const (
	reasonFits       = "Fits"
	reasonDoesNotFit = "DoesNotFit"
	reasonUndefined  = "DefinitionMissing"
)

// actionCompare is the action of events.
const actionCompare = "Compare"

// maxMessage is the maximum length of a message, so that an event accepts it.
const maxMessage = 1000

// Config holds what the controller depends on.
type Config struct {
	AnnexInjectionProfiles hostingclient.InjectionProfileInterface
	InjectionProfiles      hostinginformers.InjectionProfileInformer
	Definitions            crdinformers.CustomResourceDefinitionInformer
	// WholeDefinitions gets definitions with their schemas.
	WholeDefinitions crdlisters.CustomResourceDefinitionLister
	Events           events.EventRecorder
}

// New returns a controller that adds handlers to the informers of config. It does nothing before
// Run.
func New(config Config) (*framework.Queue[string], error) {
	r := &reconciler{config: config, now: time.Now}
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	profiles := framework.Every(func(profile *v1alpha1.InjectionProfile) { queue.Add(profile.Name) })
	definitions := framework.Every(func(crd *apiextensionsv1.CustomResourceDefinition) { enqueue(config, queue, crd.Name) })
	definitions.Updated = func(before, after *apiextensionsv1.CustomResourceDefinition) {
		if before.UID != after.UID || before.Generation != after.Generation {
			enqueue(config, queue, after.Name)
		}
	}
	return queue, queue.Watch(
		framework.Source{Name: "injection profiles", Informer: config.InjectionProfiles.Informer(), Handler: profiles},
		framework.Source{Name: "custom resource definitions", Informer: config.Definitions.Informer(), Handler: definitions},
	)
}

// enqueue queues the profiles with a resource as target. There are few profiles.
func enqueue(config Config, queue *framework.Queue[string], resource string) {
	framework.AddWhere(queue, config.InjectionProfiles.Informer(), func(profile *v1alpha1.InjectionProfile) bool {
		return slices.ContainsFunc(profile.Spec.Targets, func(target v1alpha1.InjectionTarget) bool { return target.Resource == resource })
	})
}

type reconciler struct {
	config Config
	now    func() time.Time
}

// reconcile writes the status of a profile if it changed.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	stored, err := framework.IgnoreNotFound(r.config.InjectionProfiles.Lister().Get(name))
	if err != nil || stored == nil || stored.DeletionTimestamp != nil {
		return framework.Result{}, err
	}
	ready, err := r.ready(stored)
	if err != nil {
		return framework.Result{}, err
	}
	profile := stored.DeepCopy()
	profile.Status.ObservedGeneration = profile.Generation
	ready.LastTransitionTime = metav1.NewTime(r.now())
	meta.SetStatusCondition(&profile.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(profile.Status, stored.Status) {
		return framework.Result{}, nil
	}
	written, err := r.config.AnnexInjectionProfiles.UpdateStatus(ctx, profile, metav1.UpdateOptions{})
	if _, err := framework.IgnoreNotFound(written, err); err != nil {
		return framework.Result{}, fmt.Errorf("write status of injection profile %s: %w", name, err)
	}
	before := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.InjectionProfileReady)
	if before == nil || before.Status != ready.Status || before.Reason != ready.Reason {
		kind := corev1.EventTypeNormal
		if ready.Reason == reasonDoesNotFit {
			kind = corev1.EventTypeWarning
		}
		r.config.Events.Eventf(profile, nil, kind, ready.Reason, actionCompare, "%s", ready.Message)
	}
	return framework.Result{}, nil
}

// ready compares a profile with the definitions of its targets.
func (r *reconciler) ready(profile *v1alpha1.InjectionProfile) (metav1.Condition, error) {
	condition := metav1.Condition{Type: v1alpha1.InjectionProfileReady, Status: metav1.ConditionFalse, ObservedGeneration: profile.Generation}
	errs, undefined, err := injection.CheckProfile(profile, r.config.WholeDefinitions.Get)
	switch {
	case err != nil:
		return condition, fmt.Errorf("compare injection profile %s with its targets: %w", profile.Name, err)
	case len(errs) > 0:
		condition.Reason, condition.Message = reasonDoesNotFit, "Not injected: "+errs.ToAggregate().Error()
	case len(undefined) > 0:
		condition.Reason, condition.Message = reasonUndefined, "There is no CustomResourceDefinition "+strings.Join(undefined, ", ")
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonFits, "The definitions of all targets have the paths and the fields"
	}
	condition.Message = framework.Shorten(condition.Message, maxMessage)
	return condition, nil
}
