// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/dashboards"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// checkDashboards uses two resources, moves one to the Store west and prepares a move of the other, and waits until each
// query of each dashboard has a result.
func checkDashboards(t *testing.T, annex *clients.Clients, p *prometheus) {
	t.Helper()
	widgets := defineInAnnex(t, annex, "widgets")
	defineInAnnex(t, annex, "gadgets")
	migrate(t, annex, "widgets", "west", hostingv1alpha1.MigrationSwitchAutomatic)
	waiting := migrate(t, annex, "gadgets", "west", hostingv1alpha1.MigrationSwitchManual)
	watching, err := widgets.Watch(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	defer watching.Stop()
	written := 0
	all, err := dashboards.Read(t.Context())
	expect.NoError(t, err)
	for _, dashboard := range all {
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				poll.UntilDone(t, "results of "+target.Expr+" in the panel "+dashboard.Title+": "+panel.Title, func() (bool, string) {
					written++
					if _, err := widgets.Create(t.Context(), newWidget("example.com", "v1", fmt.Sprint("w", written)), metav1.CreateOptions{}); err != nil {
						return false, err.Error()
					}
					series, err := p.query(t, queryOf(target))
					return err == nil && len(series) > 0, fmt.Sprint(series, err)
				})
			}
		}
	}
	if dir := os.Getenv("ANNEX_DASHBOARD_RESULTS"); dir != "" {
		saveResults(t, widgets, p, all, dir)
	}
	expect.Delete(t, annex.Hosting.HostingV1alpha1().Migrations(), waiting)
	expect.Gone(t, annex.Hosting.HostingV1alpha1().Migrations(), waiting)
}

// migrate creates a Migration to a Store, and returns its name.
func migrate(t *testing.T, annex *clients.Clients, plural, store string, how hostingv1alpha1.MigrationSwitch) string {
	t.Helper()
	return expect.Create(t, annex.Hosting.HostingV1alpha1().Migrations(), &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: plural + "-"}, Spec: hostingv1alpha1.MigrationSpec{Resource: plural + ".example.com", StoreName: store, Switch: how},
	}).Name
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

// queryOf returns a panel's query for widgets.
func queryOf(target dashboards.Target) string {
	return strings.NewReplacer("$job", "annex", "$group", "example.com", "$resource", "widgets", "$__rate_interval", "1m").Replace(target.Expr)
}

// saveResults writes the results of the dashboards' queries to a directory, after two minutes of requests, for `make
// dashboard-pictures`.
func saveResults(t *testing.T, widgets dynamic.ResourceInterface, p *prometheus, all map[string]*dashboards.Dashboard, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		widget, err := widgets.Create(ctx, newWidget("example.com", "v1", fmt.Sprint("picture", i)), metav1.CreateOptions{})
		if err == nil {
			_, err = widgets.Update(ctx, widget, metav1.UpdateOptions{})
		}
		if err == nil && i%10 == 0 {
			_, err = widgets.List(ctx, metav1.ListOptions{})
		}
		if err == nil && i%3 == 0 {
			err = widgets.Delete(ctx, widget.GetName(), metav1.DeleteOptions{})
		}
		if ctx.Err() == nil {
			expect.NoError(t, err)
		}
	}
	for name, dashboard := range all {
		for _, panel := range dashboard.Panels {
			for i := range panel.Targets {
				var err error
				panel.Targets[i].Results, err = p.queryRange(t, queryOf(panel.Targets[i]), time.Minute)
				expect.NoError(t, err)
			}
		}
		content, err := json.Marshal(dashboard)
		expect.NoError(t, err)
		expect.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}
