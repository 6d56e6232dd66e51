// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// Reasons of the condition DefinitionSynced.
const (
	reasonSynced                = "Synced"
	reasonTakingOver            = "TakingOver"
	reasonMoving                = "Moving"
	reasonGroupIncomplete       = "GroupIncomplete"
	reasonGroupNotReady         = "GroupNotReady"
	reasonObjectsExist          = "ObjectsExist"
	reasonMoveFailed            = "MoveFailed"
	reasonForbidden             = "Forbidden"
	reasonNotServed             = "NotServed"
	reasonNotEstablished        = "NotEstablished"
	reasonDefinedInAnnex        = "DefinedInAnnex"
	reasonTerminating           = "Terminating"
	reasonForeignAPIService     = "ForeignAPIService"
	reasonDataReplaced          = "DataReplaced"
	reasonRejected              = "Rejected"
	reasonMainDefinitionDeleted = "MainDefinitionDeleted"
	reasonNotLabelled           = "NotLabelled"
)

// syncStatus is the condition DefinitionSynced of one definition.
type syncStatus struct {
	status          metav1.ConditionStatus
	reason, message string
}

// notSynced is a status that needs action by a user.
func notSynced(reason, format string, args ...any) syncStatus {
	return syncStatus{status: metav1.ConditionFalse, reason: reason, message: fmt.Sprintf(format, args...)}
}

// pending is a status that changes without action by a user.
func pending(format string, args ...any) syncStatus {
	return syncStatus{status: metav1.ConditionUnknown, reason: reasonTakingOver, message: fmt.Sprintf(format, args...)}
}

// beingMoved is a status that ends with a Migration.
func beingMoved(message string) syncStatus {
	return syncStatus{status: metav1.ConditionUnknown, reason: reasonMoving, message: message}
}

func synced() syncStatus {
	return syncStatus{status: metav1.ConditionTrue, reason: reasonSynced, message: "annex follows the definition in the main cluster"}
}

// needsPolling reports whether the status can change without an event: with time,
// permissions, or objects.
func (v syncStatus) needsPolling() bool {
	return v.reason == reasonObjectsExist || v.reason == reasonForbidden || v.reason == reasonTerminating
}

func unlabelledGroup(unlabelled []string) syncStatus {
	return notSynced(reasonGroupIncomplete, "A group is taken over as a whole, and other definitions of it are not labelled. Label them: %s",
		hostingv1alpha1.LabelCommand(unlabelled))
}

// partlyLabelled is for versions that stay with the main cluster while annex serves the
// others.
func partlyLabelled(versions, unlabelled []string) syncStatus {
	return notSynced(reasonGroupIncomplete, "The main cluster still answers for %s: a group is taken over as a whole, and other definitions of it are not labelled. Label them: %s",
		strings.Join(versions, ", "), hostingv1alpha1.LabelCommand(unlabelled))
}

func objectsExist(group, object string) syncStatus {
	return notSynced(reasonObjectsExist, "The main cluster stores objects of this resource, among them %q. annex has changed nothing there. Move the group with its objects: %s",
		object, hostingv1alpha1.MoveCommand(group))
}

// moveFailed is for a group that the ordered Migration did not move. It is not tried again at once.
func moveFailed(migration *hostingv1alpha1.Migration) syncStatus {
	return notSynced(reasonMoveFailed, "The Migration %q did not move the group: %s. annex tries again once that Migration is deleted, which it does itself after a day",
		migration.Name, messageOf(migration))
}

func listForbidden(group string, err error) syncStatus {
	return notSynced(reasonForbidden, "annex may not move the group: %v. Allow it: %s", err, hostingv1alpha1.RightsCommand(group))
}

func notServed() syncStatus {
	return notSynced(reasonNotServed, "The definition serves no version, so annex cannot list its objects in the main cluster")
}

// notEstablished has the reason for which the main cluster does not serve a definition.
func notEstablished(crd *definition) syncStatus {
	if names := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); names != nil && names.Status == apiextensionsv1.ConditionFalse {
		return notSynced(reasonNotEstablished, "The main cluster does not serve the definition: %s", names.Message)
	}
	return notSynced(reasonNotEstablished, "The main cluster does not serve the definition yet")
}

func definedInAnnex(name string) syncStatus {
	return notSynced(reasonDefinedInAnnex, "annex has a definition of this name that does not come from the main cluster, and does not overwrite it. At annex's own endpoint delete it, which deletes its objects, or let it follow: kubectl annotate crd %s %s=%s",
		name, hostingv1alpha1.DefinitionFromAnnotation, hostingv1alpha1.DefinitionFromMain)
}

func terminatingInAnnex() syncStatus {
	return notSynced(reasonTerminating, "annex's definition is being deleted, and its objects with it. annex makes it again after that, because the main cluster has it")
}

func foreignRoute(versions []string) syncStatus {
	return notSynced(reasonForeignAPIService, "The main cluster sends requests for %s to another server: see its APIServices", strings.Join(versions, ", "))
}

// dataReplaced is for versions whose objects this annex had once. Serving them empty
// would resemble a deletion of all objects.
func dataReplaced(group string, versions []string) syncStatus {
	return notSynced(reasonDataReplaced, "The main cluster sends requests for %s of %s to annex, which had other data when it published them. Check --data-dir and --etcd-servers of annex, or restore that data. docs/crd-sync.md describes how to start without it",
		strings.Join(versions, ", "), group)
}

func rejected(err error) syncStatus {
	return notSynced(reasonRejected, "annex refuses the definition of the main cluster; what annex had before stays in force: %v", err)
}

func mainDefinitionDeleted() syncStatus {
	return notSynced(reasonMainDefinitionDeleted, "The main cluster no longer has the definition. annex keeps its own with all objects, and continues to serve them. Create the definition again, or delete the one at annex's own endpoint, which deletes the objects")
}

// terminating is for a definition whose deletion in the main cluster waits for annex.
func terminating(format string, args ...any) syncStatus {
	of := notSynced(reasonTerminating, format, args...)
	of.message = "The definition is being deleted in the main cluster. " + of.message
	return of
}

// finalizerForbidden is for a definition that annex may not set its finalizer on.
func finalizerForbidden(err error) syncStatus {
	return notSynced(reasonForbidden, "annex may not put its finalizer on the definition in the main cluster, so that deleting it there would not delete the objects in annex: %v. Allow it: kubectl annex doctor --print-rbac | kubectl apply -f -", err)
}

func noLongerLabelled(name string) syncStatus {
	return notSynced(reasonNotLabelled, "The definition in the main cluster is no longer labelled. annex keeps its own with all objects, and follows no changes. Let it follow: %s", hostingv1alpha1.LabelCommand([]string{name}))
}

// notFollowed is for a definition whose requests are routed to annex, which does not have
// it.
func notFollowed(name string, versions []string) syncStatus {
	return notSynced(reasonNotLabelled, "annex answers for %s of this group and has no such resource. Let annex follow its definition too: %s", strings.Join(versions, ", "), hostingv1alpha1.LabelCommand([]string{name}))
}

const (
	// fieldManager owns the condition DefinitionSynced.
	fieldManager = "annex-definitions"
	// takeoverManager owns status.takeover.
	takeoverManager = "annex-takeover"
)

// statusWriter writes statuses to HostedResources.
type statusWriter struct {
	annexHostedResources hostingclient.HostedResourceInterface
	// list returns the HostedResources of a group.
	list   func(group string) ([]*hosted, error)
	now    func() time.Time
	writer conditions.Writer
}

// report writes the statuses of a group. It creates the HostedResources of definitions
// that annex does not have, and releases them when they have no status any more.
func (r *statusWriter) report(ctx context.Context, g *group, verdicts map[string]syncStatus) error {
	all, err := r.list(g.name)
	if err != nil {
		return fmt.Errorf("list hosted resources of group %s: %w", g.name, err)
	}
	resources := map[string]*hosted{}
	for _, resource := range all {
		resources[resource.Name] = resource
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(verdicts)) {
		errs = append(errs, r.writeStatus(ctx, resources[name], name, verdicts[name]))
	}
	for name, resource := range resources {
		if _, condition := verdicts[name]; !condition {
			errs = append(errs, r.release(ctx, resource))
		}
	}
	return errors.Join(errs...)
}

// writeStatus writes one status if it changed.
func (r *statusWriter) writeStatus(ctx context.Context, resource *hosted, name string, of syncStatus) error {
	if resource == nil {
		var err error
		if resource, err = r.create(ctx, name); err != nil {
			return fmt.Errorf("create hosted resource %s: %w", name, err)
		}
	}
	condition := metav1.Condition{
		Type:               hostingv1alpha1.HostedResourceDefinitionSynced,
		Status:             of.status,
		ObservedGeneration: resource.Generation,
		Reason:             of.reason,
		Message:            of.message,
	}
	if !conditions.SetTransitionTime(&condition, r.writer.Get(resource), r.now()) {
		return nil
	}
	return r.writer.Write(ctx, name, &condition)
}

// clear writes which definition of annex may be published, or none.
func (r *statusWriter) clear(ctx context.Context, name string, takeover *hostingv1alpha1.HostedResourceTakeover) error {
	status := hostingapply.HostedResourceStatus()
	if takeover != nil {
		status.WithTakeover(hostingapply.HostedResourceTakeover().
			WithDefinitionUID(takeover.DefinitionUID).WithDefinitionGeneration(takeover.DefinitionGeneration))
	}
	_, err := r.annexHostedResources.ApplyStatus(ctx, hostingapply.HostedResource(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: takeoverManager, Force: true})
	if takeover == nil && apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "write whether custom resource definition %s may be published: %w", name)
}

// create creates the HostedResource of a definition that annex may never get. The
// annotation protects it from deletion. The scheduler places it as any other.
func (r *statusWriter) create(ctx context.Context, name string) (*hosted, error) {
	made, err := r.annexHostedResources.Create(ctx, &hosted{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{hostingv1alpha1.AutomanagedLabel: "true"},
			Annotations: map[string]string{hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain},
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return r.annexHostedResources.Get(ctx, name, metav1.GetOptions{})
	}
	return made, err
}

// release removes the condition, and the annotation that protects the HostedResource.
func (r *statusWriter) release(ctx context.Context, resource *hosted) error {
	if r.writer.Get(resource) != nil {
		if err := r.writer.Write(ctx, resource.Name, nil); err != nil {
			return err
		}
	}
	if resource.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == "" {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:null}}}`, resource.UID, hostingv1alpha1.DefinitionFromAnnotation)
	_, err := r.annexHostedResources.Patch(ctx, resource.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let go of hosted resource %s: %w", resource.Name, err)
	}
	return nil
}
