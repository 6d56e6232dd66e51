// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
)

// errFinalizerIgnored is returned if the main cluster accepts a write of the status, and ignores its finalizers.
var errFinalizerIgnored = errors.New("the main cluster ignores finalizers in writes of status")

// actInMain writes the main cluster's definitions, and deletes annex's definitions that follow deleted ones.
func (r *reconciler) actInMain(ctx context.Context, s *group.State, p *group.Plan) []error {
	var errs []error
	finalizer := hostingv1alpha1.Finalizer(s.PublishedBy)
	for _, name := range p.AddFinalizer {
		err := r.addFinalizer(ctx, s.Main[name], finalizer)
		if apierrors.IsForbidden(err) || errors.Is(err, errFinalizerIgnored) {
			p.Synced[name] = group.FinalizerForbidden(err)
			continue
		}
		errs = append(errs, err)
	}
	for name, message := range p.Explain {
		explained := s.Main[name].DeepCopy()
		apiextensionshelpers.SetCRDCondition(explained, group.Terminating(message))
		_, err := r.writeInMain(ctx, explained)
		errs = append(errs, wrap(err, "write the status of custom resource definition %s of the main cluster: %w", name))
	}
	for _, name := range p.Delete {
		errs = append(errs, r.deleteDefinition(ctx, s.Main[name], s.Annex[name]))
	}
	if p.Unfreeze {
		// Annex may not have the right: nothing froze groups that earlier versions took over.
		if err := r.Unfreeze(ctx, s.Name); err != nil && !apierrors.IsForbidden(err) {
			return append(errs, err) // the finalizers wait for it
		}
	}
	for _, name := range p.RemoveFinalizer {
		errs = append(errs, r.removeFinalizer(ctx, s, name, finalizer))
	}
	return errs
}

// writeInMain writes the status of a definition of the main cluster, which includes finalizers, as
// apiextensions-apiserver does with its own. It needs no permission to write specs. It returns nil for a
// definition that has changed or is gone.
func (r *reconciler) writeInMain(ctx context.Context, wanted *group.Definition) (*group.Definition, error) {
	written, err := r.MainDefinitions.UpdateStatus(ctx, wanted, metav1.UpdateOptions{FieldManager: definitionsManager})
	if err != nil {
		return nil, ignoreGone(err)
	}
	return written, nil
}

func (r *reconciler) addFinalizer(ctx context.Context, main *group.Definition, finalizer string) error {
	held := main.DeepCopy()
	held.Finalizers = append(held.Finalizers, finalizer)
	written, err := r.writeInMain(ctx, held)
	if err == nil && written != nil && !slices.Contains(written.Finalizers, finalizer) {
		err = errFinalizerIgnored
	}
	return wrap(err, "set annex's finalizer on custom resource definition %s of the main cluster: %w", main.Name)
}

// removeFinalizer reads from annex's API if the cache has no definition of annex for one that is being deleted: the
// cache may lag.
func (r *reconciler) removeFinalizer(ctx context.Context, s *group.State, name, finalizer string) error {
	if s.Main[name].DeletionTimestamp != nil && s.Annex[name] == nil {
		current, err := framework.IgnoreNotFound(r.AnnexDefinitions.Get(ctx, name, metav1.GetOptions{}))
		if err != nil || current != nil {
			return wrap(err, "check that custom resource definition %s is gone: %w", name)
		}
	}
	released := s.Main[name].DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(of string) bool { return of == finalizer })
	written, err := r.writeInMain(ctx, released)
	if written != nil {
		klog.FromContext(ctx).Info("Took annex's finalizer off a definition of the main cluster", "definition", name)
	}
	return wrap(err, "take annex's finalizer off custom resource definition %s of the main cluster: %w", name)
}

// deleteDefinition deletes a definition of annex with its objects. It reads the main cluster's from
// the API first: its label or deletion policy may have changed.
func (r *reconciler) deleteDefinition(ctx context.Context, main, annex *group.Definition) error {
	live, err := framework.IgnoreNotFound(r.MainDefinitions.Get(ctx, main.Name, metav1.GetOptions{}))
	if err != nil {
		return fmt.Errorf("check that custom resource definition %s of the main cluster is being deleted: %w", main.Name, err)
	}
	if live == nil || live.UID != main.UID || live.ResourceVersion != main.ResourceVersion {
		return nil
	}
	klog.FromContext(ctx).Info("Deleting a definition and its objects, because it was deleted in the main cluster", "definition", main.Name)
	err = r.AnnexDefinitions.Delete(ctx, annex.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(annex.UID)}})
	return wrap(ignoreGone(err), "delete custom resource definition %s in annex: %w", annex.Name)
}

// writeDefinition writes a definition of annex. If annex rejects its content, it returns a status.
func (r *reconciler) writeDefinition(ctx context.Context, current, wanted *group.Definition) (*group.Status, error) {
	var err error
	logger := klog.FromContext(ctx).WithValues("definition", wanted.Name)
	if current == nil {
		if _, err = r.AnnexDefinitions.Create(ctx, wanted, metav1.CreateOptions{FieldManager: definitionsManager}); apierrors.IsAlreadyExists(err) {
			// It has not reached the cache yet.
			return nil, nil
		}
		err = wrap(err, "create custom resource definition %s in annex: %w", wanted.Name)
	} else {
		if _, err = r.AnnexDefinitions.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: definitionsManager}); apierrors.IsNotFound(err) {
			return nil, nil
		}
		err = wrap(err, "update custom resource definition %s in annex: %w", wanted.Name)
	}
	// A retry would fail too.
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
		logger.V(1).Info("Annex refuses the main cluster's definition", "err", err)
		return new(group.Rejected(err)), nil
	}
	if err == nil {
		logger.V(1).Info("Wrote the main cluster's definition into annex", "new", current == nil)
	}
	return nil, err
}

// record permits publishing a definition in its present state, once annex serves it.
func (r *reconciler) record(ctx context.Context, s *group.State, current *group.Definition) error {
	if !s.IsSwitching() { // then it is closed
		if err := r.checkServed(ctx, current); err != nil {
			return err
		}
	}
	return r.writeTakeover(ctx, current.Name, new(group.TakeoverOf(current)))
}

// writeTakeover records which definition of annex may be published, or none. Clients may write the HostedResource all the
// time: that must not keep a group from its route.
func (r *reconciler) writeTakeover(ctx context.Context, name string, takeover *hostingv1alpha1.HostedResourceTakeover) error {
	status := hostingapply.HostedResourceStatus()
	if takeover != nil {
		status.WithTakeover(hostingapply.HostedResourceTakeover().
			WithDefinitionUID(takeover.DefinitionUID).WithDefinitionGeneration(takeover.DefinitionGeneration))
	}
	_, err := r.AnnexHostedResources.ApplyStatus(ctx, hostingapply.HostedResource(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: takeoverManager, Force: true})
	if takeover == nil && apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "write whether custom resource definition %s may be published: %w", name)
}

// probeName is a name that no object should have.
const probeName = "annex-is-this-served"

// remaining describes the objects that the deletion of annex's definitions waits for.
func (r *reconciler) remaining(ctx context.Context, s *group.State) map[string]string {
	remaining := map[string]string{}
	for name, crd := range s.Annex {
		if crd.DeletionTimestamp != nil && s.Main[name] != nil && s.Main[name].DeletionTimestamp != nil {
			remaining[name] = r.describe(ctx, crd)
		}
	}
	return remaining
}

// describe counts the objects of a definition and names one.
func (r *reconciler) describe(ctx context.Context, crd *group.Definition) string {
	versions := group.ServedVersions(crd)
	if len(versions) == 0 {
		return "it serves no version, so that they cannot be counted"
	}
	list, err := r.AnnexObjects.Resource(resourceOf(crd, versions[0])).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case err != nil:
		return fmt.Sprintf("what is left cannot be listed: %v", err)
	case len(list.Items) == 0:
		return "none is left"
	}
	first := &list.Items[0]
	text := fmt.Sprintf("%d left, among them %q", ptr.Deref(list.RemainingItemCount, 0)+1, cache.MetaObjectToName(first))
	if len(first.Finalizers) > 0 {
		text += ", which has the finalizers " + strings.Join(first.Finalizers, ", ")
	}
	return text
}

// checkServed fails unless annex serves every version of a definition. The first request
// also fills annex's watch caches, before clients of the main cluster reach them.
func (r *reconciler) checkServed(ctx context.Context, crd *group.Definition) error {
	for _, version := range group.ServedVersions(crd) {
		resource := r.AnnexObjects.Resource(resourceOf(crd, version))
		var objects metadata.ResourceInterface = resource
		if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
			objects = resource.Namespace(metav1.NamespaceDefault)
		}
		_, err := objects.Get(ctx, probeName, metav1.GetOptions{})
		if err != nil && !isAbsent(err) {
			return fmt.Errorf("see whether annex serves %s in version %s: %w", crd.Name, version, err)
		}
	}
	return nil
}

// isAbsent distinguishes a missing object from a path that is not served.
func isAbsent(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == probeName
}

func resourceOf(crd *group.Definition, version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural}
}
