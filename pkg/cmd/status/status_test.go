// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/health"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-72 * time.Hour))}
}

func hosted(name, store string, objects int64, conditions ...metav1.Condition) hostingv1alpha1.HostedResource {
	return hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: store},
		Status: hostingv1alpha1.HostedResourceStatus{Objects: objects, Bytes: objects * 1024, StoredBytes: objects * 128, Conditions: conditions},
	}
}

func newStore(name string, conditions ...metav1.Condition) hostingv1alpha1.Store {
	inUse := resource.MustParse("3Mi")
	return hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     hostingv1alpha1.StoreStatus{Conditions: conditions, Resources: 2, Objects: 7, SizeInUse: &inUse},
	}
}

// inside sets the free space of the volume of the etcd inside annex.
func inside(store hostingv1alpha1.Store) hostingv1alpha1.Store {
	store.Status.DiskFree = resource.NewQuantity(5<<30, resource.BinarySI)
	return store
}

func newMigration(name string, phase hostingv1alpha1.MigrationPhase, complete metav1.Condition) hostingv1alpha1.Migration {
	return hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: complete.LastTransitionTime},
		Spec:       hostingv1alpha1.MigrationSpec{Resource: "gadgets.example.com", StoreName: "default"},
		Status: hostingv1alpha1.MigrationStatus{
			Phase: phase, FromStoreName: "fast", StartTime: &complete.LastTransitionTime, Objects: 2, CopiedObjects: 1, Conditions: []metav1.Condition{complete},
		},
	}
}

// groupMigration moves a group.
func newGroupMigration(name string, operation hostingv1alpha1.MigrationOperation) hostingv1alpha1.Migration {
	moved := newMigration(name, hostingv1alpha1.MigrationFollowing, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, "Following", ""))
	moved.Spec = hostingv1alpha1.MigrationSpec{Group: "example.org", Operation: operation}
	moved.Status.FromStoreName, moved.Status.Objects, moved.Status.CopiedObjects = "", 3, 3
	return moved
}

func TestPrint(t *testing.T) {
	t.Parallel()
	ready := condition(hostingv1alpha1.HostedResourceReady, metav1.ConditionTrue, "Ready", "")
	storeReady := condition(hostingv1alpha1.StoreReady, metav1.ConditionTrue, "Available", "")
	since := metav1.NewTime(time.Now().Add(-72 * time.Hour))
	for name, test := range map[string]struct {
		report health.Report
		wide   bool
		want   string
	}{
		"empty": {
			health.Report{
				Server:  health.Server{Address: "https://annex", Version: "v0.1.0", Mode: "standalone"},
				Objects: &health.Objects{Stores: []hostingv1alpha1.Store{inside(newStore("default", storeReady))}},
			},
			false,
			`Server:   https://annex
annex:    v0.1.0, standalone
Disk:     5Gi free

annex serves no custom resources. Create a CustomResourceDefinition.

STORE     READY   MEMBERS   OBJECTS   IN USE   QUOTA       BACKUP
default   True    0 of 0    7         3Mi      <unknown>   <none>

Nothing needs attention.
`,
		},
		"not available": {
			health.Report{
				Server:   health.Server{Address: "https://main"},
				Findings: []health.Finding{{Check: "main-cluster", Level: health.LevelFail, Message: "it does not answer", Fix: "kubectl cluster-info"}, {Check: "stores", Level: health.LevelSkip, Message: "skipped"}},
			},
			false,
			`Server:   https://main

NEEDS ATTENTION
FAIL  main-cluster  it does not answer
                    -> kubectl cluster-info
`,
		},
		"standalone": {
			health.Report{
				Server: health.Server{Address: "https://annex"},
				Objects: &health.Objects{
					Resources: []hostingv1alpha1.HostedResource{
						hosted("gadgets.example.com", "fast", 2, ready), hosted("widgets.example.com", "default", 1, ready), hosted("widgets.other.io", "", 0),
					},
					Stores: []hostingv1alpha1.Store{
						newStore("fast", condition(hostingv1alpha1.StoreReady, metav1.ConditionFalse, "Unreachable", "start etcd")), newStore("new"),
					},
					StaticSources: []hostingv1alpha1.StaticSource{{
						ObjectMeta: metav1.ObjectMeta{Name: "file"}, Spec: hostingv1alpha1.StaticSourceSpec{Location: "/static"},
						Status: hostingv1alpha1.StaticSourceStatus{Objects: 5, Applied: 4, Orphaned: 1, Conditions: []metav1.Condition{
							condition(hostingv1alpha1.StaticSourceRead, metav1.ConditionTrue, "Complete", "5 objects"),
						}},
					}},
					Migrations: []hostingv1alpha1.Migration{
						newMigration("done", hostingv1alpha1.MigrationCompleted, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionTrue, "Completed", "")),
						newMigration("running", hostingv1alpha1.MigrationCopying, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, "Copying", "")),
						newGroupMigration("inward", hostingv1alpha1.MigrationMove),
						newGroupMigration("back", hostingv1alpha1.MigrationRollback),
					},
				},
				Findings: []health.Finding{
					{Check: "stores", Level: health.LevelOK, Message: "not shown"},
					{Check: "migrations", Level: health.LevelInfo, Message: "inward waits", Fix: "confirm it"},
					{Check: "stores", Level: health.LevelFail, Message: "fast: start etcd", Since: &since, Fix: "kubectl describe store fast"},
				},
			},
			false,
			`Server:   https://annex

GROUP         RESOURCES   OBJECTS   BYTES   STORED   STORES
example.com   2           3         3Ki     384      default,fast
other.io      1           0         0       0        <none>

STORE   READY     MEMBERS   OBJECTS   IN USE   QUOTA       BACKUP
fast    False     0 of 0    7         3Mi      <unknown>   <none>
new     Unknown   0 of 0    7         3Mi      <unknown>   <none>

MIGRATION   TO        PHASE       COPIED   AGE
running     default   Copying     50%      3d
inward      (annex)   Following   100%     3d
back        (main)    Following   100%     3d

STATIC SOURCE   LOCATION   READ   APPLIED   ORPHANED
file            /static    True   4 of 5    1

NEEDS ATTENTION
FAIL  stores      fast: start etcd (for 3d)
                  -> kubectl describe store fast
info  migrations  inward waits
                  -> confirm it
`,
		},
		"aggregated": {
			health.Report{
				Server: health.Server{
					Address: "https://main", Mode: "aggregated", MainCluster: "v1.37.2", Version: "v0.1.0", Leader: "annex-0", Replicas: 2, ReadyReplicas: 1,
					CertificateExpires: &metav1.Time{Time: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)},
				},
				Objects: &health.Objects{
					Resources: []hostingv1alpha1.HostedResource{
						hosted("gadgets.example.com", "default", 0, ready, condition(hostingv1alpha1.HostedResourcePublished, metav1.ConditionTrue, "Published", "")),
						hosted("widgets.example.com", "default", 0, ready),
					},
					Stores: []hostingv1alpha1.Store{newStore("default", storeReady)},
				},
			},
			true,
			`Server:         https://main
Main cluster:   v1.37.2
annex:          v0.1.0, aggregated
Leader:         annex-0
Replicas:       1 of 2 ready
Certificates:   valid until 2027-01-02

GROUP         RESOURCES   OBJECTS   BYTES   STORED   CACHED   STORES    PUBLISHED
example.com   2           0         0       0        0        default   1 of 2

STORE     READY   MEMBERS   RESOURCES   OBJECTS   IN USE   SIZE        QUOTA       BACKUP   VERSION
default   True    0 of 0    2           7         3Mi      <unknown>   <unknown>   <none>   

Nothing needs attention.
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			expect.NoError(t, newReport(&test.report).print(&out, test.wide))
			expect.Equal(t, test.want, out.String())
		})
	}
}

// TestFitTerminal has ordinary names and sizes, and the names of Migrations that commands create.
func TestFitTerminal(t *testing.T) {
	t.Parallel()
	const group, name = "certificates.example.corp", "pins.certificates.example.corp"
	published := condition(hostingv1alpha1.HostedResourcePublished, metav1.ConditionTrue, "Published", "")
	move, back, place := newGroupMigration(group+"-move-x7k2p", hostingv1alpha1.MigrationMove), newGroupMigration(group+"-rollback-x7k2p", hostingv1alpha1.MigrationRollback),
		newMigration(name+"-x7k2p", hostingv1alpha1.MigrationFollowing, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, "Following", ""))
	for _, m := range []*hostingv1alpha1.Migration{&move, &back, &place} {
		m.CreationTimestamp = metav1.NewTime(time.Now().Add(-191 * time.Hour))
		m.Status.Objects, m.Status.CopiedObjects = 1203456, 1203456
	}
	for name, objects := range map[string]health.Objects{
		"groups": {Resources: []hostingv1alpha1.HostedResource{hosted(name, "default", 1203456), hosted("a."+group, "fast", 1)}},
		"published groups": {Resources: []hostingv1alpha1.HostedResource{
			hosted(name, "default", 1203456, published), hosted("a."+group, "fast", 1, published),
		}},
		"stores":     {Stores: []hostingv1alpha1.Store{newStore("default"), newStore("fast-ssd-zone-a")}},
		"migrations": {Migrations: []hostingv1alpha1.Migration{move, back, place}},
		"static sources": {StaticSources: []hostingv1alpha1.StaticSource{{
			ObjectMeta: metav1.ObjectMeta{Name: "url"}, Spec: hostingv1alpha1.StaticSourceSpec{Location: "https://config.example.corp/a"},
			Status: hostingv1alpha1.StaticSourceStatus{Objects: 240, Applied: 240},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			expect.NoError(t, newReport(&health.Report{Objects: &objects}).print(&out, false))
			expect.FitsTerminal(t, out.String())
		})
	}
	t.Run("top", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		used := hosted(name, "default", 1203456)
		expect.NoError(t, printTop(&out, []row{rowOf(&used, nil), rowOf(&used, map[schema.GroupResource]load{schema.ParseGroupResource(name): {12345.6, 1024}})}, false))
		expect.FitsTerminal(t, out.String())
	})
}

// TestReportForPrograms holds the fields that scripts use.
func TestReportForPrograms(t *testing.T) {
	t.Parallel()
	content, err := json.Marshal(newReport(&health.Report{Findings: []health.Finding{{Check: "stores", Level: health.LevelFail, Message: "m", Alert: "AnnexStoreNotWritable"}}}))
	expect.NoError(t, err)
	expect.Equal(t, `{"server":{"address":""},"healthy":false,"needsAttention":[{"check":"stores","status":"FAIL","message":"m","alert":"AnnexStoreNotWritable"}],`+
		`"groups":[],"stores":[],"migrations":[],"staticSources":[]}`, string(content))
	content, err = json.Marshal(newReport(&health.Report{Findings: []health.Finding{{Check: "stores", Level: health.LevelWarn}}}))
	expect.NoError(t, err)
	expect.Contains(t, string(content), `"healthy":true`)
	used := hosted("widgets.example.com", "fast", 2)
	content, err = json.Marshal([]row{rowOf(&used, nil)})
	expect.NoError(t, err)
	expect.Equal(t, `[{"resource":"widgets.example.com","store":"fast","objects":2,"bytes":2048,"storedBytes":256,"cachedBytes":0,"requestsPerSecond":null,"watches":null}]`, string(content))
}

// TestShow prints a status that is watched when it has changed.
func TestShow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := &statusOptions{out: &out}
	var last *view
	for _, text := range []string{"a 1s\n", "a 2s\n", "b 3s\n"} {
		now := &view{text: []byte(text), content: []byte(text[:1])}
		expect.NoError(t, o.show(now, last))
		last = now
	}
	expect.Equal(t, "a 1s\n\nb 3s\n", out.String())
}

func TestLoadsOf(t *testing.T) {
	t.Parallel()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	first := parse(t, `
apiserver_request_total{group="example.com",resource="widgets",verb="GET"} 10
apiserver_request_total{group="example.com",resource="gadgets",verb="GET"} 5
apiserver_longrunning_requests{group="example.com",resource="widgets",verb="WATCH"} 100
`)
	second := parse(t, `
apiserver_request_total{group="example.com",resource="widgets",verb="GET"} 20
apiserver_request_total{group="example.com",resource="widgets",verb="LIST"} 4
apiserver_request_total{group="example.com",resource="gadgets",verb="GET"} 5
apiserver_longrunning_requests{group="example.com",resource="widgets",verb="WATCH"} 3
apiserver_longrunning_requests{group="example.com",resource="widgets",verb="watch"} 2
apiserver_longrunning_requests{group="example.com",resource="widgets",verb="PROXY"} 1
`)
	loads := loadsOf(first, second, 2*time.Second)
	if got := loads[widgets]; got != (load{requests: 7, watches: 5}) {
		t.Errorf("the load of widgets: %+v", got)
	}
	if got := loads[schema.GroupResource{Group: "example.com", Resource: "gadgets"}]; got != (load{}) {
		t.Errorf("the load of gadgets: %+v", got)
	}
}

func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	text = "# TYPE apiserver_request_total counter\n# TYPE apiserver_longrunning_requests gauge\n" + strings.TrimPrefix(text, "\n")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	expect.NoError(t, err)
	return families
}
