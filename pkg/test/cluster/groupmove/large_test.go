// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// largeSchema returns a schema of about 1 MB, as Argo Workflows has.
func largeSchema() *apiextensionsv1.JSONSchemaProps {
	description := strings.Repeat("what the field means, ", 10)
	fields := map[string]apiextensionsv1.JSONSchemaProps{}
	for i := range 60 {
		inner := map[string]apiextensionsv1.JSONSchemaProps{}
		for j := range 60 {
			inner[fmt.Sprintf("field%d", j)] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: description}
		}
		fields[fmt.Sprintf("section%d", i)] = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: inner}
	}
	fields["value"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: fields},
	}}
}

// TestLargeDefinitions moves a group whose definitions have about 1 MB each. A switch may be undone only because the machine
// is busy, and the Move has to complete.
func TestLargeDefinitions(t *testing.T) {
	t.Parallel()
	schema := largeSchema()
	f := newFixtureWithoutRights(t, sharedAnnex, "large.example.com", func(crd *definition) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
	})
	for _, plural := range []string{"gadgets", "gizmos", "things"} {
		crd := crds.New(f.group, plural, "v1")
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
		expect.Create(t, f.main.CRDs(), crd)
		poll.UntilNoError(t, "the main cluster serves "+plural, func() error {
			resource := f.resource()
			resource.Resource = plural
			_, err := f.main.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	f.grant()
	before := f.create("default", "one", nil)
	migration := f.mustMigrate(hostingv1alpha1.MigrationMove, nil)
	f.wantServed(hostingv1alpha1.PublishedBy("annex-system", "annex"))
	f.wantIdentity(before)
	events, err := f.main.Kube.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SwitchFailed,regarding.name=" + migration.Name})
	expect.NoError(t, err)
	for i := range events.Items {
		if note := events.Items[i].Note; !strings.Contains(note, move.ErrWatchLost.Error()) && !strings.Contains(note, "did not change within") {
			t.Errorf("event %s: %s", events.Items[i].Reason, note)
		}
	}
}
