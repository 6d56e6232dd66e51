// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	widgets     = "widgets.example.com"
	widgetsPath = "/apis/example.com/v1/widgets"
	gadgets     = "gadgets.example.com"
	gadgetsPath = "/apis/example.com/v1/gadgets"
)

// newMetrics returns lines of /metrics.
func newMetrics(lines ...string) string {
	types := ""
	for _, name := range []string{objectsMetric, oldObjectsMetric, sizeMetric, etcdMetric, "apiserver_longrunning_requests"} {
		types += "# TYPE " + name + " gauge\n"
		for _, line := range lines {
			if strings.HasPrefix(line, name+"{") {
				types += line + "\n"
			}
		}
	}
	return types
}

// webhook converts with a Service.
func webhook(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"},
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "ns", Name: "converter"}},
	}}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	return crd
}

// report surveys a cluster, and returns the text too.
func report(t *testing.T, f *fake, group string) (*Report, string) {
	t.Helper()
	found, err := f.survey(t, group)
	expect.NoError(t, err)
	var out bytes.Buffer
	expect.NoError(t, found.print(&out, group != "", false, "annex diagnose"))
	for _, request := range f.requests {
		if !strings.HasPrefix(request, "GET ") && request != "POST "+reviewPath {
			t.Errorf("sent %s", request)
		}
	}
	return found, out.String()
}

func TestGroups(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1", "v2"), define(gadgets, "v1"), define("empties.empty.example.com", "v1"), define("parts.foreign.example.com", "v1"),
		define("pieces.hosted.example.com", "v1"), define("bits.emptied.example.com", "v1"), define("bits.forgotten.example.com", "v1"), define("secrets.closed.example.com", "v1"))
	f.fill(widgetsPath, 1200, 1000)
	f.fill(gadgetsPath, 3, 500)
	f.route("foreign.example.com", "v1", nil)
	for _, hosted := range []string{"hosted.example.com", "emptied.example.com", "forgotten.example.com"} {
		f.route(hosted, "v1", map[string]string{hostingv1alpha1.PublishedByLabel: "annex-system.annex"})
	}
	f.migrated(hostingv1alpha1.MigrationMove, "hosted.example.com", "pieces", 30, 60_000)
	f.migrated(hostingv1alpha1.MigrationFinalize, "emptied.example.com", "bits", 30, 60_000)
	f.failures["/apis/closed.example.com/v1/secrets"] = http.StatusForbidden
	_, text := report(t, f, "")
	expect.Equal(t, `GROUP                   OBJECTS     ETCD    SHARE   MEMORY   CAN MOVE
example.com             1203        1.1Mi   95%     25Mi     yes
hosted.example.com      30          59Ki    5%      703Ki    in annex
emptied.example.com     0           0       0%      0        in annex
empty.example.com       0           0       0%      0        yes
closed.example.com      forbidden   -       -       -        unknown
foreign.example.com     -           -       -       -        no
forgotten.example.com   -           -       -       -        in annex

Custom resources are 1233 objects of 1.2Mi in etcd.
Moving the groups that can move frees 1.1Mi of etcd, and about 25Mi of memory in each kube-apiserver.
The sizes of 1 resource are estimated from the first 500 objects.
Missing rights: get /metrics; list *.closed.example.com. An administrator grants them with:
  kubectl annex diagnose --print-rights='jane'\''s' | kubectl apply -f -
hosted.example.com: in annex: annex (annex-system.annex) serves v1; the cluster keeps the copy from before the move.
closed.example.com: unknown: the objects of secrets cannot be counted.
foreign.example.com: no: The main cluster sends requests for v1 to another server: see its APIServices.
What deletes a copy, so that it can no longer roll back: kubectl annex finalize --help
Each resource of a group, and the command that moves it: annex diagnose --group=GROUP
`, text)
}

func TestMetricsAreCheaper(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1"), define(gadgets, "v1"), define("empties.empty.example.com", "v1"))
	f.fill(widgetsPath, 100, 1000)
	f.fill(gadgetsPath, 2, 500)
	f.metrics = newMetrics(
		`apiserver_resource_objects{group="example.com",resource="widgets"} 99`,
		`apiserver_resource_objects{group="example.com",resource="gadgets"} 0`,
		`apiserver_resource_objects{group="",resource="pods"} 8`,
		`apiserver_resource_size_estimate_bytes{group="example.com",resource="widgets"} 99000`,
		`apiserver_resource_size_estimate_bytes{group="",resource="pods"} 100000`,
		`apiserver_resource_size_estimate_bytes{group="",resource="events"} -1`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 3e+06`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-1"} 1e+06`,
		`apiserver_longrunning_requests{group="example.com",resource="widgets",verb="WATCH",version="v1",subresource=""} 3`,
		`apiserver_longrunning_requests{group="example.com",resource="widgets",verb="WATCH",version="v2",subresource=""} 2`,
		`apiserver_longrunning_requests{group="example.com",resource="widgets",verb="CONNECT",version="v2",subresource="exec"} 7`,
	)
	found, text := report(t, f, "")
	// What the metrics have is only counted.
	expect.Equal(t, []string{
		"GET /metrics", "GET " + definitionsPath + "?limit=100", "GET " + apiServicesPath + "?limit=100",
		"GET /apis/empty.example.com/v1/empties?limit=10", "GET " + gadgetsPath + "?limit=10", "GET " + widgetsPath + "?limit=10",
	}, f.requests)
	expect.Equal(t, int64(4e6), *found.EtcdBytes)
	expect.Equal(t, int64(5), *found.Groups[0].Watches)
	expect.Equal(t, "50%", percent(*found.Groups[0].Share))
	expect.Contains(t, text,
		"example.com         102       99Ki   50%     1.1Mi    yes",
		"Custom resources are 102 of 110 objects in etcd, and 99Ki of 196Ki. Its files have 3.8Mi.\n",
		"Moving the groups that can move frees 99Ki of etcd, and about 1.1Mi of memory in each kube-apiserver.\n",
		"The sizes of 1 resource are from kube-apiserver's metrics.\n",
		"Each resource of a group, and the command that moves it: annex diagnose --group=GROUP\n")
	if strings.Contains(text, "Missing rights") || strings.Contains(text, "estimated from the first") {
		t.Error(text)
	}
}

// TestOldMetrics: before Kubernetes 1.34 sizes are missing.
func TestOldMetrics(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1"))
	f.fill(widgetsPath, 700, 1000)
	f.metrics = newMetrics(`apiserver_storage_objects{resource="widgets.example.com"} 700`, `apiserver_storage_objects{resource="pods"} 4`)
	found, _ := report(t, f, "")
	widgets := found.Groups[0].Resources[0]
	if widgets.Source != SourceSample || *widgets.Objects != 700 || *widgets.Bytes != 700_000 || *found.AllObjects != 704 || found.EtcdBytes != nil {
		t.Errorf("%+v", found)
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	f := newFake(webhook(define(widgets, "v1", "v2")), define(gadgets, "v1"), define("others.example.org", "v1"))
	f.fill(widgetsPath, 700, 1000)
	found, text := report(t, f, "example.com")
	expect.Equal(t, `GROUP         OBJECTS   ETCD    SHARE   MEMORY   CAN MOVE
example.com   700       684Ki   -       15Mi     yes

RESOURCE   OBJECTS   ETCD    MEMORY   WATCHES   SOURCE
gadgets    0         0       0        -         List
widgets    700       684Ki   15Mi     -         Sample

The sizes of 1 resource are estimated from the first 500 objects.
Missing rights: get /metrics. An administrator grants them with:
  kubectl annex diagnose --print-rights='jane'\''s' | kubectl apply -f -
Can move: yes.
With annex installed:
  kubectl annex move example.com
`, text)
	var wide bytes.Buffer
	expect.NoError(t, found.print(&wide, true, true, "annex diagnose"))
	expect.Contains(t, wide.String(), `
RESOURCE   SCOPE        VERSIONS   STORED   CONVERSION     OBJECTS   ETCD    MEMORY   WATCHES   SOURCE
gadgets    Namespaced   v1         v1       <none>         0         0       0        -         List
widgets    Namespaced   v1,v2      v1       ns/converter   700       684Ki   15Mi     -         Sample
`)
	for _, request := range f.requests {
		if strings.Contains(request, "example.org") {
			t.Errorf("sent %s", request)
		}
	}
}

// TestFitTerminal has ordinary names and sizes, and numbers that are not known.
func TestFitTerminal(t *testing.T) {
	t.Parallel()
	large := Usage{Objects: new(int64(1203456)), Bytes: new(int64(1023 << 20)), MemoryBytes: new(int64(1023 << 20)), Watches: new(int64(1024)), Rates: Rates{
		WritesPerSecond: new(1234.5), BytesPerHour: new(float64(1023 << 20)),
	}}
	r := &Report{Groups: []*Group{
		{Name: "certificates.example.corp", Usage: large, Share: new(0.5), Move: Move{Verdict: MoveHosted}, Resources: []*Resource{
			{Name: "validatingpolicyreportbindings", Scope: "Namespaced", Versions: []string{"v1", "v1beta1"}, StorageVersion: "v1beta1", ConversionWebhook: "converter/webhook", Usage: large, Source: SourceMetrics},
			{Name: "pins", Forbidden: true},
		}},
		{Name: "a.example.corp", Move: Move{Verdict: MoveUnknown}},
	}}
	for name, test := range map[string]struct {
		one    bool
		window float64
	}{"groups": {false, 0}, "groups with rates": {false, 60}, "resources": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shown := *r
			shown.WindowSeconds = test.window
			var out bytes.Buffer
			expect.NoError(t, shown.print(&out, test.one, false, "annex diagnose"))
			for table := range strings.SplitSeq(out.String(), "\n\n") {
				if strings.HasPrefix(table, "GROUP ") || strings.HasPrefix(table, "RESOURCE ") {
					expect.FitsTerminal(t, table)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	invalid := define(widgets, "v1")
	invalid.Spec.PreserveUnknownFields = true
	absent := define(widgets, "v1")
	absent.Status.Conditions = nil
	unserved := define(widgets, "v1")
	unserved.Spec.Versions[0].Served = false
	for name, test := range map[string]struct {
		definitions []*apiextensionsv1.CustomResourceDefinition
		change      func(*fake)
		want        Verdict
		reason      string
	}{
		"empty":           {[]*apiextensionsv1.CustomResourceDefinition{define(widgets, "v1")}, nil, MoveYes, ""},
		"objects":         {nil, func(f *fake) { f.fill(gadgetsPath, 1, 100) }, MoveYes, ""},
		"refused":         {[]*apiextensionsv1.CustomResourceDefinition{invalid}, nil, MoveNo, "annex refuses the definition widgets.example.com: spec.preserveUnknownFields"},
		"not established": {[]*apiextensionsv1.CustomResourceDefinition{absent}, nil, MoveNo, "The main cluster does not serve the definition yet"},
		"not served":      {[]*apiextensionsv1.CustomResourceDefinition{unserved}, nil, MoveNo, "The definition serves no version"},
		"other server":    {nil, func(f *fake) { f.route("example.com", "v1", nil) }, MoveNo, "The main cluster sends requests for v1 to another server"},
		"hosted": {nil, func(f *fake) {
			f.route("example.com", "v1", map[string]string{hostingv1alpha1.PublishedByLabel: "a.b"})
		}, MoveHosted, "annex (a.b) serves v1"},
		"not listed":       {nil, func(f *fake) { f.failures[gadgetsPath] = http.StatusForbidden }, MoveUnknown, "the objects of gadgets cannot be counted"},
		"no APIServices":   {nil, func(f *fake) { f.failures[apiServicesPath] = http.StatusForbidden }, MoveUnknown, "the APIServices cannot be read"},
		"broken converter": {nil, func(f *fake) { f.failures[gadgetsPath] = http.StatusInternalServerError }, MoveUnknown, "the objects of gadgets cannot be counted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(append(test.definitions, define(gadgets, "v1"))...)
			if test.change != nil {
				test.change(f)
			}
			found, _ := report(t, f, "")
			move := found.Groups[0].Move
			if move.Verdict != test.want || !strings.Contains(fmt.Sprint(move.Reasons), test.reason) {
				t.Errorf("%+v, want %s with %q", move, test.want, test.reason)
			}
			var commands []string
			if move.Verdict == MoveYes {
				commands = []string{"kubectl annex move example.com"}
			}
			expect.Equal(t, commands, move.Commands)
		})
	}
}

func TestMissingRights(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1"), define(gadgets, "v1"), define("others.example.org", "v1"))
	f.failures[apiServicesPath] = http.StatusForbidden
	f.failures[gadgetsPath] = http.StatusForbidden
	f.failures["/apis/example.org/v1/others"] = http.StatusForbidden
	f.fill(widgetsPath, 2, 100)
	found, text := report(t, f, "")
	expect.Equal(t, []string{"get /metrics", "list apiservices.apiregistration.k8s.io", "list gadgets.example.com", "list *.example.org"}, found.MissingRights)
	expect.Contains(t, text, "Missing rights: get /metrics; list apiservices.apiregistration.k8s.io; list gadgets.example.com; list *.example.org. An administrator")
	_, text = report(t, f, "example.com")
	expect.Contains(t, text, "gadgets    forbidden   -      -        -         <none>")
}

// TestWithoutDefinitions: the metrics have the groups.
func TestWithoutDefinitions(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.failures[definitionsPath] = http.StatusForbidden
	f.metrics = newMetrics(
		`apiserver_resource_objects{group="example.com",resource="widgets"} 9`,
		`apiserver_resource_objects{group="apps",resource="deployments"} 9`,
		`apiserver_resource_objects{group="storage.k8s.io",resource="csinodes"} 9`,
		`apiserver_resource_objects{group="apiextensions.k8s.io",resource="customresourcedefinitions"} 9`,
		`apiserver_resource_size_estimate_bytes{group="example.com",resource="widgets"} 9000`,
	)
	found, _ := report(t, f, "")
	if len(found.Groups) != 1 || found.Groups[0].Name != "example.com" || *found.Groups[0].Bytes != 9000 || found.Groups[0].Move.Verdict != MoveUnknown {
		t.Errorf("%+v", found.Groups)
	}
	expect.Equal(t, []string{listDefinitions}, found.MissingRights)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fake)
		group  string
		want   []string
	}{
		"nothing may be read":   {func(f *fake) { f.failures[definitionsPath] = http.StatusForbidden }, "", []string{"read the CustomResourceDefinitions of https://cluster.example.com", "no, 403"}},
		"not logged in":         {func(f *fake) { f.failures[definitionsPath], f.metrics = http.StatusUnauthorized, "x 1\n" }, "", []string{"no, 401"}},
		"no such group":         {func(*fake) {}, "example.org", []string{"--group \"example.org\"", "no CustomResourceDefinition"}},
		"a definition is wrong": {func(f *fake) { f.collections[definitionsPath] = []any{1} }, "", []string{"decode a CustomResourceDefinition"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(define(widgets, "v1"))
			test.change(f)
			_, err := f.survey(t, test.group)
			expect.ErrorLine(t, err, test.want...)
		})
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		count, size int
		known       measured
		gone        bool
		want        content
		requests    int
	}{
		"none":                       {0, 0, measured{}, false, content{0, 0, 0, SourceList}, 1},
		"a page":                     {10, 100, measured{}, false, content{10, 1000, 0, SourceList}, 1},
		"all":                        {450, 100, measured{}, false, content{450, 45_000, 0, SourceList}, 6},
		"many":                       {2000, 100, measured{}, false, content{2000, 200_000, 0, SourceSample}, 6},
		"large":                      {300, 200_000, measured{}, false, content{300, 60_000_000, 0, SourceSample}, 2},
		"compacted during the pages": {450, 100, measured{}, true, content{450, 45_000, 0, SourceSample}, 2},
		"measured":                   {2000, 100, measured{new(int64(2000)), new(int64(240_000)), 0}, false, content{2000, 240_000, 0, SourceMetrics}, 1},
		"measured a minute ago":      {2000, 100, measured{new(int64(1900)), new(int64(228_000)), 0}, false, content{2000, 240_000, 0, SourceMetrics}, 1},
		"measured before a load":     {2000, 100, measured{new(int64(3)), new(int64(300)), 0}, false, content{2000, 200_000, 0, SourceSample}, 6},
		"only counted":               {2000, 100, measured{new(int64(2000)), nil, 0}, false, content{2000, 200_000, 0, SourceSample}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(define(widgets, "v1"))
			f.fill(widgetsPath, test.count, test.size)
			if test.gone {
				f.failures["continue "+widgetsPath] = http.StatusGone
			}
			got, err := lister{f.client(t)}.read(t.Context(), widgetsPath, test.known)
			expect.NoError(t, err)
			if least := got.bytes + got.objects*perObject; got.memory < least || got.memory > 2*least {
				t.Errorf("%d bytes of memory for %+v", got.memory, got)
			}
			got.memory = 0
			if got != test.want || len(f.requests) != test.requests {
				t.Errorf("%+v after %d requests, want %+v after %d", got, len(f.requests), test.want, test.requests)
			}
		})
	}
}

func TestInCaches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resource Resource
		want     int64
	}{
		"one version":            {Resource{Versions: []string{"v1"}, StorageVersion: "v1"}, 2000},
		"two versions":           {Resource{Versions: []string{"v1", "v2"}, StorageVersion: "v1"}, 4000},
		"stored, but not served": {Resource{Versions: []string{"v1"}, StorageVersion: "v2"}, 4000},
	} {
		if got := inCaches(1000, &test.resource); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestJSON: names are documented and stay.
func TestJSON(t *testing.T) {
	t.Parallel()
	f := newFake(webhook(define(widgets, "v1")))
	f.fill(widgetsPath, 100, 1000)
	f.failures[apiServicesPath] = http.StatusForbidden
	f.metrics = newMetrics(
		`apiserver_resource_objects{group="example.com",resource="widgets"} 100`,
		`apiserver_resource_size_estimate_bytes{group="example.com",resource="widgets"} 120000`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 5000`,
	)
	found, _ := report(t, f, "")
	out, err := json.MarshalIndent(found, "", "  ")
	expect.NoError(t, err)
	expect.Equal(t, `{
  "server": "https://cluster.example.com",
  "groups": [
    {
      "name": "example.com",
      "objects": 100,
      "bytes": 120000,
      "memoryBytes": 1320960,
      "watches": 0,
      "share": 1,
      "move": {
        "verdict": "Unknown",
        "reasons": [
          "the APIServices cannot be read"
        ]
      },
      "resources": [
        {
          "name": "widgets",
          "scope": "Namespaced",
          "versions": [
            "v1"
          ],
          "storageVersion": "v1",
          "conversionWebhook": "ns/converter",
          "objects": 100,
          "bytes": 120000,
          "memoryBytes": 1320960,
          "watches": 0,
          "source": "Metrics"
        }
      ]
    }
  ],
  "customResources": {
    "objects": 100,
    "bytes": 120000,
    "memoryBytes": 1320960,
    "watches": 0
  },
  "movable": {
    "objects": null,
    "bytes": null,
    "memoryBytes": null,
    "watches": null
  },
  "allObjects": 100,
  "allBytes": 120000,
  "etcdBytes": 5000,
  "missingRights": [
    "list apiservices.apiregistration.k8s.io"
  ],
  "grantCommand": "kubectl annex diagnose --print-rights='jane'\\''s' | kubectl apply -f -"
}`, string(out))
}

// TestUnderWay: while a group is rolled back, the cluster serves its copy in a version of its own.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	f := newFake(define(widgets, "v1", hostingv1alpha1.MainCopyVersion))
	f.route("example.com", "v1", map[string]string{hostingv1alpha1.PublishedByLabel: "a.b"})
	f.fill("/apis/example.com/"+hostingv1alpha1.MainCopyVersion+"/widgets", 7, 1000)
	f.migrated(hostingv1alpha1.MigrationRollback, "example.com", "widgets", 30, 60_000)
	f.collections[migrationsPath][0].(*hostingv1alpha1.Migration).Status.Phase = hostingv1alpha1.MigrationCopying
	found, _ := report(t, f, "")
	if got := found.Groups[0]; *got.Objects != 7 || got.Resources[0].Source != SourceList {
		t.Errorf("%+v", got.Resources[0])
	}
}
