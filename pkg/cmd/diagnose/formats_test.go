// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestWindow has 30 more objects, 60 more requests and some more transactions at the second scrape.
func TestWindow(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1"), define(gadgets, "v1"))
	f.fill(widgetsPath, 70, 1000)
	requests := func(successful int) string {
		lines := "# TYPE apiserver_request_total counter\n"
		for labels, value := range map[string]int{
			`code="201",verb="POST",dry_run=""`: successful, `code="200",verb="APPLY",dry_run=""`: successful, `code="200",verb="PATCH",dry_run="All"`: 10 * successful,
			`code="409",verb="PUT",dry_run=""`: 10 * successful, `code="200",verb="GET",dry_run=""`: 10 * successful,
		} {
			lines += fmt.Sprintf("apiserver_request_total{group=\"example.com\",resource=\"widgets\",%s} %d\n", labels, value)
		}
		return lines + fmt.Sprintf("apiserver_request_total{group=\"example.com\",resource=\"gadgets\",code=\"200\",verb=\"PUT\",dry_run=\"\"} %d\n", 1000-successful)
	}
	scrapes := 0
	f.before = func(path string) {
		if path != "/metrics" {
			return
		}
		if scrapes++; scrapes == 3 {
			f.fill(widgetsPath, 30, 1000)
		}
		f.metrics = requests(30 * scrapes)
	}
	const window = 50 * time.Millisecond
	found, err := Survey(t.Context(), "", f.client(t), Options{Window: window, SortBy: "writes"}, nil)
	expect.NoError(t, err)
	seconds := found.WindowSeconds
	if seconds < window.Seconds() {
		t.Fatalf("the window was %f s", seconds)
	}
	g, byName := found.Groups[0], map[string]*Resource{}
	for _, r := range g.Resources {
		byName[r.Name] = r
	}
	expect.Equal(t, perSecond(60/seconds), perSecond(*byName["widgets"].WritesPerSecond))
	expect.Equal(t, signed(30/seconds*3600), signed(*byName["widgets"].ObjectsPerHour))
	expect.Equal(t, signedSize(30_000/seconds*3600), signedSize(*byName["widgets"].BytesPerHour))
	if *found.WritesPerSecond <= 0 {
		t.Errorf("etcd had %f writes", *found.WritesPerSecond)
	}
	if gadgets := byName["gadgets"]; gadgets.WritesPerSecond != nil || *gadgets.ObjectsPerHour != 0 || *gadgets.BytesPerHour != 0 {
		t.Errorf("a counter that went back, and no growth: %+v", gadgets.Rates)
	}
	var out bytes.Buffer
	expect.NoError(t, found.print(&out, false, true, "annex diagnose"))
	expect.Contains(t, out.String(), "GROUP         RESOURCES   OBJECTS   ETCD   SHARE   MEMORY   WATCHES   WRITES/S   OBJECTS/H", " etcd had ", " writes per second; kube-apiserver had ")
}

func TestSortBy(t *testing.T) {
	t.Parallel()
	report := &Report{Groups: []*Group{
		{Name: "b", Usage: Usage{Objects: new(int64(2)), Bytes: new(int64(1)), Watches: new(int64(1)), Rates: Rates{WritesPerSecond: new(1.0)}}},
		{Name: "a", Usage: Usage{Objects: new(int64(1)), Bytes: new(int64(2)), MemoryBytes: new(int64(9)), Rates: Rates{BytesPerHour: new(-1.0)}}},
		{Name: "c"},
	}}
	for key, want := range map[string]string{"etcd": "abc", "objects": "bac", "memory": "abc", "watches": "bac", "writes": "bac", "growth": "abc", "name": "abc"} {
		report.sortBy(key)
		got := ""
		for _, g := range report.Groups {
			got += g.Name
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", key, got, want)
		}
	}
	if len(SortKeys) != 7 {
		t.Errorf("not all of %q are tested", SortKeys)
	}
}

func TestCSV(t *testing.T) {
	t.Parallel()
	f := newFake(webhook(define(widgets, "v1", "v2")), define("secrets.closed.example.com", "v1"))
	f.fill(widgetsPath, 2, 1000)
	f.failures["/apis/closed.example.com/v1/secrets"] = http.StatusForbidden
	found, _ := report(t, f, "")
	var out bytes.Buffer
	expect.NoError(t, found.printCSV(&out))
	rows, err := csv.NewReader(&out).ReadAll()
	expect.NoError(t, err)
	column := func(row []string, name string) string { return row[slices.Index(csvHeader, name)] }
	if len(rows) != 3 || column(rows[1], "versions") != "v1 v2" || column(rows[1], "bytes") != "2000" || column(rows[1], "verdict") != "Yes" {
		t.Errorf("%q", rows)
	}
	if column(rows[2], "objects") != "" || column(rows[2], "forbidden") != "true" || column(rows[2], "reasons") == "" {
		t.Errorf("what is not known: %q", rows[2])
	}
}

// TestHTML has names that a tenant might choose.
func TestHTML(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1"), define("pieces.hosted.example.com", "v1"), define("secrets.closed.example.com", "v1"))
	f.fill(widgetsPath, 2, 1000)
	f.failures["/apis/closed.example.com/v1/secrets"] = http.StatusForbidden
	found, _ := report(t, f, "")
	found.Groups[0].Resources[0].ConversionWebhook = `https://"><script>alert(1)</script>`
	found.Problems = []string{"<b>bad</b>"}
	var out bytes.Buffer
	expect.NoError(t, found.printHTML(&out, time.Unix(0, 0)))
	text := out.String()
	expect.Contains(t, text, "1970-01-01 00:00 UTC", "can move to annex: 2Ki", `style="width: 100.0%"`, "&lt;b&gt;bad&lt;/b&gt;", "kubectl annex move example.com", "list *.closed.example.com")
	if strings.Contains(text, "ZgotmplZ") || strings.Contains(text, "<b>") {
		t.Error(text)
	}
	page, err := html.Parse(strings.NewReader(text))
	expect.NoError(t, err)
	for node := range page.Descendants() {
		for _, a := range node.Attr {
			if node.Data == "script" || a.Key == "src" || a.Key == "href" {
				t.Errorf("the page is not self-contained: <%s %s=%q>", node.Data, a.Key, a.Val)
			}
		}
	}
}

func TestPrintRights(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1"), define(gadgets, "v1"), define("others.example.org", "v1"))
	var out bytes.Buffer
	expect.NoError(t, PrintRights(t.Context(), f.client(t), "jane's", &out))
	documents := strings.Split(out.String(), "---\n")
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	expect.NoError(t, yaml.UnmarshalStrict([]byte(documents[0]), &role))
	expect.NoError(t, yaml.UnmarshalStrict([]byte(documents[1]), &binding))
	if len(role.Rules) != 6 || fmt.Sprint(role.Rules[4].Resources) != "[gadgets widgets]" || binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != "jane's" {
		t.Errorf("%s", out.String())
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, "*") || len(rule.Verbs) != 1 || !slices.Contains([]string{"get", "list"}, rule.Verbs[0]) {
			t.Errorf("the role has %v", rule)
		}
	}
	f.failures[definitionsPath] = http.StatusForbidden
	expect.Error(t, PrintRights(t.Context(), f.client(t), "jane", &out), "read the groups of the role")
}
