// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

const (
	// fieldManager owns the condition DefinitionSynced.
	fieldManager = "annex-definitions"
	// takeoverManager owns status.takeover.
	takeoverManager = "annex-takeover"
)

// statusWriter writes verdicts into HostedResources.
type statusWriter struct {
	annexHostedResources hostingclient.HostedResourceInterface
	// list are the HostedResources of a group.
	list func(group string) ([]*hosted, error)
	now  func() time.Time
	// writer is of the condition DefinitionSynced.
	writer conditions.Writer
}

// report has the HostedResources of a group say the verdicts. Those of definitions
// that annex does not have are made, and let go when there is nothing to say any
// more.
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
		if _, said := verdicts[name]; !said {
			errs = append(errs, r.release(ctx, resource))
		}
	}
	return errors.Join(errs...)
}

// writeStatus writes one verdict if it is news.
func (r *statusWriter) writeStatus(ctx context.Context, resource *hosted, name string, of syncStatus) error {
	if resource == nil {
		var err error
		if resource, err = r.create(ctx, name); err != nil {
			return fmt.Errorf("create hosted resource %s: %w", name, err)
		}
	}
	said := metav1.Condition{
		Type:               hostingv1alpha1.HostedResourceDefinitionSynced,
		Status:             of.status,
		ObservedGeneration: resource.Generation,
		Reason:             of.reason,
		Message:            of.message,
	}
	if !conditions.SetTransitionTime(&said, r.writer.Get(resource), r.now()) {
		return nil
	}
	return r.writer.Write(ctx, name, &said)
}

// clear writes which definition of annex's may be published, or none.
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

// create makes the HostedResource of a definition that annex may never get. The
// annotation keeps it: nothing in annex defines it. Where it goes is the scheduler's
// to say, as for any other.
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

// release takes back what was said, and lets go of a HostedResource that was kept
// for it.
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
