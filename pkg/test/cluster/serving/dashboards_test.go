// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// checkDashboards uses two resources, moves one to the Store west and prepares a move of the other, and waits until each
// query of each dashboard has a result.
func checkDashboards(t *testing.T, annex *clients.Clients, p *prometheus) {
	t.Helper()
	widgets := defineInAnnex(t, annex, "widgets")
	defineInAnnex(t, annex, "gadgets")
	migrate := func(plural string, how hostingv1alpha1.MigrationSwitch) {
		expect.Create(t, annex.Hosting.HostingV1alpha1().Migrations(), &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: plural}, Spec: hostingv1alpha1.MigrationSpec{Resource: plural + ".example.com", StoreName: "west", Switch: how},
		})
	}
	migrate("widgets", hostingv1alpha1.MigrationSwitchAutomatic)
	migrate("gadgets", hostingv1alpha1.MigrationSwitchManual)
	watching, err := widgets.Watch(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	defer watching.Stop()
	written := 0
	for name, query := range dashboardQueries(t) {
		poll.UntilDone(t, "results of the panel "+name, func() (bool, string) {
			written++
			if _, err := widgets.Create(t.Context(), newWidget("example.com", "v1", fmt.Sprint("w", written)), metav1.CreateOptions{}); err != nil {
				return false, err.Error()
			}
			series, err := p.query(t, query)
			return err == nil && len(series) > 0, fmt.Sprint(query, ": ", series, err)
		})
	}
	expect.Delete(t, annex.Hosting.HostingV1alpha1().Migrations(), "gadgets")
	expect.Gone(t, annex.Hosting.HostingV1alpha1().Migrations(), "gadgets")
}

// defineInAnnex creates a CRD of the group example.com, and waits until it is served.
func defineInAnnex(t *testing.T, annex *clients.Clients, plural string) dynamic.ResourceInterface {
	t.Helper()
	expect.Create(t, annex.CRDs(), crds.New("example.com", plural, "v1"))
	objects := annex.Dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}).Namespace(metav1.NamespaceDefault)
	poll.UntilNoError(t, plural+" are served", func() error {
		_, err := objects.List(t.Context(), metav1.ListOptions{})
		return err
	})
	return objects
}

// dashboardQueries returns the queries of all panels, for widgets, by dashboard and panel.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "artifacts/chart/dashboards/*.json"))
	expect.NoError(t, err)
	variables := strings.NewReplacer("$job", "annex", "$group", "example.com", "$resource", "widgets", "$__rate_interval", "1m")
	queries := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		expect.NoError(t, err)
		var dashboard struct {
			Title  string `json:"title"`
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		expect.NoError(t, json.Unmarshal(content, &dashboard))
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				queries[dashboard.Title+": "+panel.Title+": "+target.Expr] = variables.Replace(target.Expr)
			}
		}
	}
	if len(queries) == 0 {
		t.Fatal("there are no dashboards")
	}
	return queries
}
