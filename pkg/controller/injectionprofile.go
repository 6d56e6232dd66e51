// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/injection"
)

// injectionProfilesName names the controller in logs, metrics and events.
const injectionProfilesName = "annex-injection"

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

// injectionProfiles is the controller of InjectionProfiles: it reports whether a profile fits the
// definitions of its targets, also when these are created or change after the profile.
type injectionProfiles struct {
	*framework.Queue[string]
	config Config
	events events.EventRecorder
}

func newInjectionProfiles(config Config, recorder events.EventRecorder) (*injectionProfiles, error) {
	c := &injectionProfiles{config: config, events: recorder}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: injectionProfilesName, Reconcile: c.reconcile})
	definitions := framework.Every(func(crd *apiextensionsv1.CustomResourceDefinition) { c.enqueue(crd.Name) })
	definitions.Updated = func(before, after *apiextensionsv1.CustomResourceDefinition) {
		if before.UID != after.UID || before.Generation != after.Generation {
			c.enqueue(after.Name)
		}
	}
	return c, c.Watch(
		framework.Source{
			Name: "injection profiles", Informer: config.AnnexInjectionProfileInformer.Informer(),
			Handler: framework.Every(func(profile *hostingv1alpha1.InjectionProfile) { c.Add(profile.Name) }),
		},
		framework.Source{Name: "custom resource definitions", Informer: config.AnnexDefinitionInformer.Informer(), Handler: definitions},
	)
}

// enqueue queues the profiles with a resource as target. There are few profiles.
func (c *injectionProfiles) enqueue(resource string) {
	framework.AddWhere(c, c.config.AnnexInjectionProfileInformer.Informer(), func(profile *hostingv1alpha1.InjectionProfile) bool {
		return slices.ContainsFunc(profile.Spec.Targets, func(target hostingv1alpha1.InjectionTarget) bool { return target.Resource == resource })
	})
}

// reconcile writes the status of a profile if it changed.
func (c *injectionProfiles) reconcile(ctx context.Context, name string) (framework.Result, error) {
	stored, err := framework.IgnoreNotFound(c.config.AnnexInjectionProfileInformer.Lister().Get(name))
	if err != nil || stored == nil || stored.DeletionTimestamp != nil {
		return framework.Result{}, err
	}
	ready, err := c.ready(stored)
	if err != nil {
		return framework.Result{}, err
	}
	profile := stored.DeepCopy()
	profile.Status.ObservedGeneration = profile.Generation
	ready.LastTransitionTime = metav1.Now()
	meta.SetStatusCondition(&profile.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(profile.Status, stored.Status) {
		return framework.Result{}, nil
	}
	written, err := c.config.AnnexHosting.HostingV1alpha1().InjectionProfiles().UpdateStatus(ctx, profile, metav1.UpdateOptions{})
	if _, err := framework.IgnoreNotFound(written, err); err != nil {
		return framework.Result{}, fmt.Errorf("write status of injection profile %s: %w", name, err)
	}
	before := meta.FindStatusCondition(stored.Status.Conditions, hostingv1alpha1.InjectionProfileReady)
	if before == nil || before.Status != ready.Status || before.Reason != ready.Reason {
		kind := corev1.EventTypeNormal
		if ready.Reason == reasonDoesNotFit {
			kind = corev1.EventTypeWarning
		}
		c.events.Eventf(profile, nil, kind, ready.Reason, actionCompare, "%s", ready.Message)
	}
	return framework.Result{}, nil
}

// ready compares a profile with the definitions of its targets.
func (c *injectionProfiles) ready(profile *hostingv1alpha1.InjectionProfile) (metav1.Condition, error) {
	condition := metav1.Condition{Type: hostingv1alpha1.InjectionProfileReady, Status: metav1.ConditionFalse, ObservedGeneration: profile.Generation}
	errs, undefined, err := injection.CheckProfile(profile, c.config.AnnexWholeDefinitions.Lister().Get)
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
