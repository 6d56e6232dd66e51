// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// probeName is a name that no object is expected to have.
const probeName = "annex-is-this-served"

// annexObjects asks annex about its own objects.
type annexObjects struct {
	client metadata.Interface
}

// remaining says which objects keep annex's definitions from being gone that are
// deleted because the main cluster's are.
func (a annexObjects) remaining(ctx context.Context, g *group) map[string]string {
	remaining := map[string]string{}
	for _, name := range g.terminating() {
		if current := g.annex[name]; current != nil && isTerminating(current) {
			remaining[name] = a.describe(ctx, current)
		}
	}
	return remaining
}

// describe counts the objects of a definition and names one.
func (a annexObjects) describe(ctx context.Context, crd *definition) string {
	versions := servedVersions(crd)
	if len(versions) == 0 {
		return "it serves no version, so that they cannot be counted"
	}
	list, err := a.client.Resource(versions[0]).List(ctx, metav1.ListOptions{Limit: 1})
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

// checkServed fails unless annex answers for every version of a definition. The first
// request also has it begin to fill its caches, so that they are ready when those
// come that were answered by the main cluster until then.
func (a annexObjects) checkServed(ctx context.Context, crd *definition) error {
	for _, resource := range servedVersions(crd) {
		var objects metadata.ResourceInterface = a.client.Resource(resource)
		if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
			objects = a.client.Resource(resource).Namespace(metav1.NamespaceDefault)
		}
		_, err := objects.Get(ctx, probeName, metav1.GetOptions{})
		if err != nil && !isAbsent(err) {
			return fmt.Errorf("see whether annex serves %s in version %s: %w", crd.Name, resource.Version, err)
		}
	}
	return nil
}

// isAbsent tells an object that does not exist from a path that is not served.
func isAbsent(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == probeName
}

func servedVersions(crd *definition) []schema.GroupVersionResource {
	var served []schema.GroupVersionResource
	for _, version := range crd.Spec.Versions {
		if version.Served {
			served = append(served, schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural})
		}
	}
	return served
}
