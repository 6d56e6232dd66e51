// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
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

func store(name string, conditions ...metav1.Condition) hostingv1alpha1.Store {
	inUse := resource.MustParse("3Mi")
	return hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     hostingv1alpha1.StoreStatus{Conditions: conditions, Resources: 2, Objects: 7, SizeInUse: &inUse},
	}
}

func migration(name string, phase hostingv1alpha1.MigrationPhase, complete metav1.Condition) hostingv1alpha1.Migration {
	return hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: complete.LastTransitionTime},
		Spec:       hostingv1alpha1.MigrationSpec{Resource: "gadgets.example.com", StoreName: "default"},
		Status: hostingv1alpha1.MigrationStatus{
			Phase: phase, FromStoreName: "fast", Objects: 2, CopiedObjects: 1, Conditions: []metav1.Condition{complete},
		},
	}
}

// groupMigration moves a group.
func groupMigration(name string, operation hostingv1alpha1.MigrationOperation) hostingv1alpha1.Migration {
	moved := migration(name, hostingv1alpha1.MigrationFollowing, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, "Following", ""))
	moved.Spec = hostingv1alpha1.MigrationSpec{Group: "example.org", Operation: operation}
	moved.Status.FromStoreName, moved.Status.Objects, moved.Status.CopiedObjects = "", 3, 3
	return moved
}

func TestPrint(t *testing.T) {
	t.Parallel()
	ready := condition(hostingv1alpha1.HostedResourceReady, metav1.ConditionTrue, "Ready", "")
	for name, test := range map[string]struct {
		objects objects
		want    string
	}{
		"empty": {
			objects{Stores: []hostingv1alpha1.Store{store("default", condition(hostingv1alpha1.StoreReady, metav1.ConditionTrue, "Ready", ""), condition(hostingv1alpha1.StoreUnderPressure, metav1.ConditionFalse, "NoPressure", ""))}},
			`annex serves no custom resources. Create a CustomResourceDefinition.

STORE     READY   RESOURCES   OBJECTS   IN USE   QUOTA
default   True    2           7         3Mi      <unknown>

Nothing needs attention.
`,
		},
		"standalone": {
			objects{
				Resources: []hostingv1alpha1.HostedResource{
					hosted("gadgets.example.com", "fast", 2, condition(hostingv1alpha1.HostedResourceStoreReady, metav1.ConditionFalse, "StoreNotReady", "start etcd")),
					hosted("widgets.example.com", "default", 1, ready),
					hosted("widgets.other.io", "", 0, condition(hostingv1alpha1.HostedResourceReady, metav1.ConditionFalse, "NotScheduled", "not placed"),
						condition(hostingv1alpha1.HostedResourceScheduled, metav1.ConditionFalse, "NoStore", "no Store\nfits")),
				},
				Stores: []hostingv1alpha1.Store{
					store("fast", condition(hostingv1alpha1.StoreReady, metav1.ConditionFalse, "Unreachable", "start etcd"),
						condition(hostingv1alpha1.StoreUnderPressure, metav1.ConditionTrue, "DiskFull", "raise the quota")),
					store("new", condition(hostingv1alpha1.StoreReady, metav1.ConditionUnknown, "Connecting", "wait"),
						condition(hostingv1alpha1.StoreUnderPressure, metav1.ConditionUnknown, "Connecting", "wait")),
				},
				StaticSources: []hostingv1alpha1.StaticSource{{
					ObjectMeta: metav1.ObjectMeta{Name: "file"}, Spec: hostingv1alpha1.StaticSourceSpec{Location: "/static"},
					Status: hostingv1alpha1.StaticSourceStatus{Objects: 5, Applied: 4, Orphaned: 1, Conditions: []metav1.Condition{
						condition(hostingv1alpha1.StaticSourceRead, metav1.ConditionTrue, "Complete", "5 objects"),
						condition(hostingv1alpha1.StaticSourceApplied, metav1.ConditionFalse, "NotApplied", "a name is taken"),
					}},
				}},
				Migrations: []hostingv1alpha1.Migration{
					migration("done", hostingv1alpha1.MigrationCompleted, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionTrue, "Completed", "")),
					migration("failed", hostingv1alpha1.MigrationFailed, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, "NoSpace", "raise the quota")),
					migration("running", hostingv1alpha1.MigrationCopying, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, "Copying", "")),
					groupMigration("inward", hostingv1alpha1.MigrationMove),
					groupMigration("back", hostingv1alpha1.MigrationRollback),
					migration("stuck", hostingv1alpha1.MigrationCleaning, condition(hostingv1alpha1.MigrationComplete, metav1.ConditionFalse, hostingv1alpha1.MigrationRetrying, "start etcd")),
				},
			},
			`GROUP         RESOURCES   OBJECTS   BYTES   STORED   STORES
example.com   2           3         3Ki     384      default,fast
other.io      1           0         0       0        <none>

STORE   READY     RESOURCES   OBJECTS   IN USE   QUOTA
fast    False     2           7         3Mi      <unknown>
new     Unknown   2           7         3Mi      <unknown>

MIGRATION   RESOURCE              FROM             TO               PHASE       COPIED   AGE
running     gadgets.example.com   fast             default          Copying     1 of 2   3d
inward      example.org           (main cluster)   (annex)          Following   3 of 3   3d
back        example.org           (annex)          (main cluster)   Following   3 of 3   3d
stuck       gadgets.example.com   fast             default          Cleaning    1 of 2   3d

STATIC SOURCE   LOCATION   READ   OBJECTS   APPLIED   ORPHANED
file            /static    True   5         4         1

NEEDS ATTENTION                   CONDITION            REASON        SINCE   MESSAGE
store/fast                        Ready=False          Unreachable   3d      start etcd
store/fast                        UnderPressure=True   DiskFull      3d      raise the quota
store/new                         Ready=Unknown        Connecting    3d      wait
hostedresource/widgets.other.io   Scheduled=False      NoStore       3d      no Store fits
migration/failed                  Complete=False       NoSpace       3d      raise the quota
migration/stuck                   Complete=False       Retrying      3d      start etcd
staticsource/file                 Applied=False        NotApplied    3d      a name is taken
`,
		},
		"aggregated": {
			objects{Resources: []hostingv1alpha1.HostedResource{
				hosted("gadgets.example.com", "default", 0, ready, condition(hostingv1alpha1.HostedResourcePublished, metav1.ConditionTrue, "Published", "")),
				hosted("widgets.example.com", "default", 0, ready),
			}},
			`GROUP         RESOURCES   OBJECTS   BYTES   STORED   STORES    PUBLISHED
example.com   2           0         0       0        default   1 of 2

STORE   READY   RESOURCES   OBJECTS   IN USE   QUOTA

Nothing needs attention.
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			expect.NoError(t, test.objects.print(&out))
			expect.Equal(t, test.want, out.String())
		})
	}
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
