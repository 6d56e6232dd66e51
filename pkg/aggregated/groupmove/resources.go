// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

type resource struct {
	maincopy.Resource
	// main is its definition in the main cluster.
	main     *definition
	hosted   *hostingv1alpha1.HostedResource
	importer *move.Importer
	// state is the state of the import in the Store.
	state    move.State
	exporter *move.Exporter
	progress atomic.Pointer[move.Progress]
	syncer   *move.Syncer
}

// current returns how far the resource is, or nil.
func (r *resource) current() *move.Progress {
	if r.syncer == nil {
		return r.progress.Load()
	}
	p := r.syncer.Progress()
	return &p
}

// compared returns how many objects were verified.
func (r *resource) compared() int64 {
	switch {
	case r.syncer != nil:
		return r.syncer.Compared()
	case r.importer != nil:
		return r.importer.Compared()
	}
	return 0
}

// isEmpty reports whether there was nothing to copy.
func (r *resource) isEmpty() bool {
	p := r.progress.Load()
	return p != nil && p.Copied == 0
}

// isCopy reports whether the Store has or had a copy.
func (r *resource) isCopy() bool {
	return slices.Contains([]move.State{move.Copying, move.Following, move.Switched}, r.state)
}

// named returns the resource of a definition, or nil.
func (r *Run) named(definition string) *resource {
	for _, of := range r.resources {
		if of.Name == definition {
			return of
		}
	}
	return nil
}

func (r *Run) forEach(do func(of *resource) error) error {
	for _, of := range r.resources {
		if err := do(of); err != nil {
			return err
		}
	}
	return nil
}

// mainDefinitions returns the definitions of the group in the main cluster, by name.
func (r *Run) mainDefinitions(ctx context.Context) ([]*definition, error) {
	return r.config.MainCopy.Definitions(ctx, r.group())
}

// versions returns the versions of the group that definitions serve, the most mature first.
func versions(definitions ...*definition) (served []schema.GroupVersion) {
	names := sets.New[string]()
	for _, crd := range definitions {
		names.Insert(group.ServedVersions(crd)...)
	}
	for _, name := range group.ByMaturity(names.Delete(hostingv1alpha1.MainCopyVersion).UnsortedList()) {
		served = append(served, schema.GroupVersion{Group: definitions[0].Spec.Group, Version: name})
	}
	return served
}

// find finds the resources of the group, once annex has defined and placed all that are needed.
func (r *Run) find(ctx context.Context) error {
	return r.untilReported(ctx, func(ctx context.Context) (string, error) {
		resources, missing, err := r.present(ctx)
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(missing)) {
			if r.needs(name) {
				return missing[name], nil
			}
		}
		for _, of := range resources {
			if in := of.hosted.Spec.StoreName; !r.canceled && r.Migration.Spec.StoreName != "" && in != r.Migration.Spec.StoreName {
				return "", refuse(reasonPlaced, "%s is on the Store %q already. Move it there, and then from Store to Store: kubectl annex place", of.Name, in)
			}
		}
		r.resources = resources
		return "", nil
	})
}

// needs reports whether an attempt waits for a resource. annex does not define one that is added during the switch, and
// what is undone or cleaned may lack some. But one that the switch began with may be open or closed already.
func (r *Run) needs(name string) bool {
	switch r.Status.Phase {
	case hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving:
		return slices.ContainsFunc(r.Status.Resources, func(of hostingv1alpha1.MigrationResourceStatus) bool { return of.Name == name })
	case hostingv1alpha1.MigrationCleaning:
		return false
	}
	return !r.canceled
}

// discarded refuses to begin again what an attempt that has ended began to undo.
func (r *Run) discarded() error {
	return refuse(reasonObstacles, "Group %s was not moved: annex was restarted after it had failed", r.group())
}

// present returns those resources of the group that are ready, and why the others are not.
func (r *Run) present(ctx context.Context) (resources []*resource, missing map[string]string, err error) {
	definitions, err := r.mainDefinitions(ctx)
	missing = map[string]string{}
	for _, crd := range definitions {
		hosted, problem, err := r.prepared(ctx, crd)
		switch {
		case err != nil:
			return nil, nil, err
		case problem != "":
			missing[crd.Name] = problem
		default:
			resources = append(resources, &resource{Resource: maincopy.ResourceOf(crd), main: crd, hosted: hosted})
		}
	}
	return resources, missing, err
}

// orNull returns a value in a merge patch, which removes a field if it is empty.
func orNull(value string) string {
	if value == "" {
		return "null"
	}
	return fmt.Sprintf("%q", value)
}

// label sets the label of the main cluster's definitions that makes annex follow them, or removes it if
// the value is empty. Definitions of a megabyte may take longer than the main cluster waits: the others are labelled
// nevertheless, and the next attempt labels those that are missing.
func (r *Run) label(ctx context.Context, definitions []*definition, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, hostingv1alpha1.HostedLabel, orNull(value))
	var errs []error
	for _, crd := range definitions {
		if before, labelled := crd.Labels[hostingv1alpha1.HostedLabel]; before == value && labelled == (value != "") {
			continue
		}
		// The user may have begun another Migration since this attempt was replaced.
		if err := r.Check(ctx); err != nil {
			return err
		}
		if _, err := r.config.MainDefinitions.Patch(ctx, crd.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
			errs = append(errs, wrap(err, "set the label %s of definition %s in the main cluster to %q", hostingv1alpha1.HostedLabel, crd.Name, value))
		}
	}
	return errors.Join(errs...)
}

// prepared returns the HostedResource of a definition, or why it is not ready for a copy.
func (r *Run) prepared(ctx context.Context, crd *definition) (hosted *hostingv1alpha1.HostedResource, problem string, err error) {
	hosted, err = r.config.AnnexHosting.HostedResources().Get(ctx, crd.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("Waiting until annex has a HostedResource %s", crd.Name), nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read hosted resource %s: %w", crd.Name, err)
	}
	follower, err := r.config.AnnexDefinitions.Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("read definition %s in annex: %w", crd.Name, err)
	}
	if err != nil || !apiextensionshelpers.IsCRDConditionTrue(follower, apiextensionsv1.Established) ||
		follower.Annotations[hostingv1alpha1.DefinitionUIDAnnotation] != string(crd.UID) {
		message := fmt.Sprintf("Waiting until annex serves the definition %s", crd.Name)
		if synced := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced); synced != nil {
			message += ": " + synced.Message
		}
		return nil, message, nil
	}
	if hosted.Spec.StoreName == "" || hosted.Status.DefinitionUID != follower.UID {
		return nil, fmt.Sprintf("Waiting until %s is placed on a Store", crd.Name), nil
	}
	return hosted, "", nil
}

// raising is the range over which a rollback raises the main cluster's revision.
type raising struct{ from, above int64 }

// ofPhase returns the progress of a phase, nil if it counts nothing.
func (r *Run) ofPhase(status *hostingv1alpha1.MigrationStatus) *hostingv1alpha1.MigrationProgress {
	p := &hostingv1alpha1.MigrationProgress{Total: status.Objects}
	switch operation := r.Migration.Spec.Operation; {
	case status.Phase == hostingv1alpha1.MigrationCopying:
		p.Done = status.CopiedObjects
	case status.Phase == hostingv1alpha1.MigrationVerifying:
		for _, of := range r.resources {
			p.Done += of.compared()
		}
	case status.Phase == hostingv1alpha1.MigrationFollowing && r.raising.Load() != nil:
		of := r.raising.Load()
		p.Done, p.Total = max(0, r.config.MainCopy.Reached()-of.from), of.above-of.from
	case status.Phase == hostingv1alpha1.MigrationCleaning && operation == hostingv1alpha1.MigrationFinalize:
		// An earlier attempt has deleted some.
		p.Total = 0
		for _, of := range r.resources {
			if now := of.progress.Load(); now != nil {
				p.Done, p.Total = p.Done+now.Copied, p.Total+now.Total
			}
		}
	default:
		return nil
	}
	return p
}

func (r *Run) addProgress(status *hostingv1alpha1.MigrationStatus) {
	status.Progress = nil
	if len(r.resources) == 0 {
		return
	}
	before := map[string]hostingv1alpha1.MigrationResourceStatus{}
	for _, of := range status.Resources {
		before[of.Name] = of
	}
	status.Resources = nil
	status.Objects, status.CopiedObjects, status.CopiedBytes = 0, 0, 0
	var lag int64
	for _, of := range r.resources {
		entry := before[of.Name]
		entry.Name = of.Name
		if p := of.current(); p != nil {
			entry.Objects = max(entry.Objects, p.Total)
			entry.CopiedObjects, entry.CopiedBytes = p.Copied, p.Bytes
			lag += p.Lag
		}
		status.Resources = append(status.Resources, entry)
		status.Objects += entry.Objects
		status.CopiedObjects += entry.CopiedObjects
		status.CopiedBytes += entry.CopiedBytes
	}
	status.Lag, status.Progress = &lag, r.ofPhase(status)
}
