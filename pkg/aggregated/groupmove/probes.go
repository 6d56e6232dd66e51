// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// requestTimeout bounds each request that annex makes to see whether clients reach a group.
	requestTimeout = 10 * time.Second
	// probeName is the name of an object that is never stored.
	probeName = "annex-checks-requests"
)

// problem returns what keeps clients from the group, or an empty string.
func (m *moveIn) problem(ctx context.Context, definitions []*definition) string {
	for _, crd := range definitions {
		hosted, err := m.config.AnnexHosting.HostedResources().Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		published := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		if published == nil || published.Status != metav1.ConditionTrue {
			message := "the main cluster has not checked yet whether it reaches annex"
			if published != nil {
				message = published.Message
			}
			return fmt.Sprintf("%s: %s", crd.Name, message)
		}
	}
	return cmp.Or(m.routeProblem(ctx, versions(definitions...), true), m.requestProblem(ctx, definitions), m.openAPIProblem(ctx, definitions))
}

// probe is a request that annex sends through the main cluster, as clients do.
type probe struct {
	what string
	send func(context.Context) error
	// reads is set for a request that calls no admission webhook.
	reads bool
}

// probes returns the requests for each version of the group. The object of a dry run is annex's own: a tenant's may
// make a conversion webhook fail.
func (m *moveIn) probes(definitions []*definition) []probe {
	var all []probe
	for _, crd := range definitions {
		for _, version := range versions(crd) {
			resource := version.WithResource(crd.Spec.Names.Plural)
			var objects dynamic.ResourceInterface = m.config.MainDynamic.Resource(resource)
			if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
				objects = m.config.MainDynamic.Resource(resource).Namespace(hostingv1alpha1.NamespaceAnnexSystem)
			}
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(version.WithKind(crd.Spec.Names.Kind))
			object.SetName(probeName)
			all = append(all, probe{what: fmt.Sprintf("list %s through the main cluster", resource), reads: true, send: func(ctx context.Context) error {
				_, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
				return err
			}}, probe{what: fmt.Sprintf("create %s with a dry run through the main cluster", resource), send: func(ctx context.Context) error {
				_, err := objects.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			}})
		}
	}
	return all
}

// findSound finds the probes that the main cluster itself answers: a webhook may fail for any object that is not complete.
func (m *moveIn) findSound(ctx context.Context) error {
	definitions, err := m.mainDefinitions(ctx)
	if err != nil {
		return err
	}
	m.sound = map[string]bool{}
	for _, p := range m.probes(definitions) {
		m.sound[p.what] = !isServerError(within(ctx, p.send))
	}
	return nil
}

// requestProblem returns which probe fails that was sound before the switch, or an empty string. An attempt that began
// after the switch sends reads alone.
func (m *moveIn) requestProblem(ctx context.Context, definitions []*definition) string {
	for _, p := range m.probes(definitions) {
		if !p.reads && !m.sound[p.what] {
			continue
		}
		if err := within(ctx, p.send); isServerError(err) {
			return fmt.Sprintf("%s: %v", p.what, err)
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

// openAPIProblem returns which resource the main cluster's OpenAPI v3 lacks, or an empty string.
func (r *Run) openAPIProblem(ctx context.Context, definitions []*definition) string {
	documents, err := r.config.MainOpenAPI.PathsWithContext(ctx)
	if err != nil {
		return fmt.Sprintf("get the main cluster's OpenAPI: %v", err)
	}
	for _, version := range versions(definitions...) {
		document, found := documents["apis/"+version.String()]
		if !found {
			return fmt.Sprintf("the main cluster's OpenAPI lacks %s", version)
		}
		text, err := document.SchemaWithContext(ctx, runtime.ContentTypeJSON)
		if err != nil {
			return fmt.Sprintf("get the main cluster's OpenAPI of %s: %v", version, err)
		}
		if missing := missingFrom(text, version, definitions); missing != "" {
			return fmt.Sprintf("the main cluster's OpenAPI of %s lacks %s", version, missing)
		}
	}
	return ""
}

// missingFrom returns a resource of a version that a document has no path for.
func missingFrom(text []byte, version schema.GroupVersion, definitions []*definition) string {
	var document struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Sprintf("paths: %v", err)
	}
	for _, crd := range definitions {
		describes := slices.ContainsFunc(slices.Collect(maps.Keys(document.Paths)), func(path string) bool {
			return strings.HasSuffix(path, "/"+crd.Spec.Names.Plural)
		})
		if apiextensionshelpers.HasServedCRDVersion(crd, version.Version) && !describes {
			return crd.Name
		}
	}
	return ""
}
