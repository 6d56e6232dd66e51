// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// requestTimeout bounds each request that annex makes to see whether clients reach a group.
	requestTimeout = 10 * time.Second
	// probeName is the name of an object that is never stored.
	probeName = "annex-checks-requests"
)

// requestProblem sends requests for each version of the group through the main cluster, as clients do, and returns
// what fails, or an empty string. The object of the dry run is annex's own: a tenant's may make a conversion
// webhook fail.
func (m *moveIn) requestProblem(ctx context.Context, definitions []*definition) string {
	for _, crd := range definitions {
		for _, version := range versions([]*definition{crd}) {
			resource := version.WithResource(crd.Spec.Names.Plural)
			var objects dynamic.ResourceInterface = m.config.MainDynamic.Resource(resource)
			if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
				objects = m.config.MainDynamic.Resource(resource).Namespace(hostingv1alpha1.NamespaceAnnexSystem)
			}
			probe := &unstructured.Unstructured{}
			probe.SetGroupVersionKind(version.WithKind(crd.Spec.Names.Kind))
			probe.SetName(probeName)
			for what, request := range map[string]func(context.Context) error{
				"list": func(ctx context.Context) error {
					_, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
					return err
				},
				"create with a dry run": func(ctx context.Context) error {
					_, err := objects.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				},
			} {
				if err := within(ctx, request); isServerError(err) {
					return fmt.Sprintf("%s %s through the main cluster: %v", what, resource, err)
				}
			}
		}
	}
	return ""
}

func within(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request(ctx)
}

// isServerError reports whether a request was not answered, or with a status of 500 or more. The group's schema
// and policies may refuse the dry run.
func isServerError(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError)
}
