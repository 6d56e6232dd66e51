// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewNotFound(hostingv1alpha1.Resource("stores"), "default")
	conflict := apierrors.NewConflict(hostingv1alpha1.Resource("stores"), "default", errors.New("changed"))
	current := func() *hostingv1alpha1.Store {
		s := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		setObserved(s, cluster(answer(1, 10*mebi, nil)), epoch)
		s.Status.Objects, s.Status.Resources, s.Status.ClusterID = 3, 2, "c1"
		return s
	}
	fresh := func() *hostingv1alpha1.Store {
		return &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	}
	well := func() *stores.Snapshot { return cluster(answer(1, 10*mebi, nil)) }

	for name, tc := range map[string]struct {
		store       *hostingv1alpha1.Store
		getErr      error
		writeErr    error
		seen        *stores.Snapshot
		unknown     bool
		writtenAgo  time.Duration
		wantErr     string
		wantRequeue time.Duration
		wantWrites  int
	}{
		"gone":                            {getErr: gone},
		"not read":                        {getErr: errors.New("broken"), wantErr: "read store default"},
		"not connected yet":               {store: fresh(), wantRequeue: minInterval, wantWrites: 1},
		"new":                             {store: fresh(), seen: well(), wantWrites: 1, wantRequeue: refreshInterval},
		"the same":                        {store: current(), seen: well(), wantRequeue: refreshInterval},
		"objects not known":               {store: current(), seen: well(), unknown: true, wantRequeue: refreshInterval},
		"written just now":                {store: fresh(), seen: well(), writtenAgo: 300 * time.Millisecond, wantRequeue: 700 * time.Millisecond},
		"down":                            {store: current(), seen: down(), wantWrites: 1, wantRequeue: troubleInterval},
		"down, and so cannot be written":  {store: current(), seen: down(), writeErr: conflict, wantWrites: 1, wantRequeue: troubleInterval},
		"cannot be written":               {store: fresh(), seen: well(), writeErr: conflict, wantErr: "write status of store default", wantWrites: 1, wantRequeue: refreshInterval},
		"gone while it was being written": {store: fresh(), seen: well(), writeErr: gone, wantWrites: 1, wantRequeue: refreshInterval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := epoch.Add(-tc.writtenAgo)
			p := framework.NewThrottle(minInterval, func() time.Time { return now })
			if tc.writtenAgo > 0 {
				p.Mark("default")
				now = epoch
			}
			writes := 0
			r := &reconciler{
				getStore: func(string) (*hostingv1alpha1.Store, error) { return tc.store, tc.getErr },
				updateStatus: func(_ context.Context, s *hostingv1alpha1.Store, _ metav1.UpdateOptions) (*hostingv1alpha1.Store, error) {
					writes++
					return s, tc.writeErr
				},
				connection: func(string) (Connection, error) {
					if tc.seen == nil {
						return nil, errors.New("not there")
					}
					return &connection{seen: tc.seen}, nil
				},
				objects:  func(string) (int64, bool) { return 3, !tc.unknown },
				placed:   func(string) int32 { return 2 },
				events:   events.NewFakeRecorder(10),
				throttle: p,
				now:      func() time.Time { return epoch },
				trouble:  map[string]string{},
				noted:    map[string]time.Time{},
			}
			result, err := r.reconcile(t.Context(), "default")
			expect.ErrorOrNone(t, err, tc.wantErr)
			if result.RequeueAfter != tc.wantRequeue {
				t.Errorf("requeued after %s, want %s", result.RequeueAfter, tc.wantRequeue)
			}
			if writes != tc.wantWrites {
				t.Errorf("wrote %d times, want %d", writes, tc.wantWrites)
			}
		})
	}
}

// one is a reconciler of one store, whose writes it keeps.
type one struct {
	*reconciler
	*connection
	events   *events.FakeRecorder
	store    *hostingv1alpha1.Store
	resident int32
}

func newOne(store *hostingv1alpha1.Store, seen *stores.Snapshot) *one {
	o := &one{store: store, connection: &connection{seen: seen}, events: events.NewFakeRecorder(100)}
	update := func(_ context.Context, s *hostingv1alpha1.Store, _ metav1.UpdateOptions) (*hostingv1alpha1.Store, error) {
		o.store = s
		return s, nil
	}
	o.reconciler = &reconciler{
		getStore:     func(string) (*hostingv1alpha1.Store, error) { return o.store, nil },
		updateStatus: update, update: update,
		connection: func(string) (Connection, error) { return o.connection, nil },
		objects:    func(string) (int64, bool) { return 0, false },
		placed:     func(string) int32 { return o.resident },
		livePlaced: func(context.Context, string) (int32, error) { return o.resident, nil },
		events:     o.events,
		throttle:   framework.NewThrottle(0, time.Now),
		now:        func() time.Time { return epoch },
		trouble:    map[string]string{},
		noted:      map[string]time.Time{},
		liveOwner: func(_ context.Context, uid types.UID) (string, error) {
			if uid == "of-one-that-exists" {
				return "near", nil
			}
			return "", nil
		},
	}
	return o
}

func (o *one) look(t *testing.T, seen *stores.Snapshot) {
	t.Helper()
	o.change(func(c *connection) { c.seen = seen })
	if _, err := o.reconcile(t.Context(), o.store.Name); err != nil {
		t.Fatal(err)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	well := func() *stores.Snapshot { return cluster(answer(1, mebi, nil)) }
	const inUse = "Create a Store with another keyPrefix. If the other one no longer exists, see docs/stores-reference.md, An etcd with other data; the etcd cluster is c1"
	for name, tc := range map[string]struct {
		seen     *stores.Snapshot
		known    string
		adopt    string
		claimErr error
		deleted  bool
		want     []bool
		wantID   string
		wantWhy  string
	}{
		"first contact":              {seen: refused(well(), stores.ReasonUnclaimed, "not yet"), want: []bool{false}, wantID: "c1"},
		"claimed a moment ago":       {seen: refused(well(), stores.ReasonUnclaimed, "not yet"), known: "c1", wantID: "c1"},
		"not reached":                {seen: down()},
		"serves":                     {seen: well(), known: "c1", wantID: "c1"},
		"another's":                  {seen: refused(well(), stores.ReasonInUse, "another's")},
		"another's, to be adopted":   {seen: refused(well(), stores.ReasonInUse, "another's"), adopt: "c1", want: []bool{true}, wantID: "c1"},
		"another cluster":            {seen: refused(well(), stores.ReasonWrongCluster, "another"), known: "c0", wantID: "c0"},
		"another cluster, adopted":   {seen: refused(well(), stores.ReasonWrongCluster, "another"), known: "c0", adopt: "c1", want: []bool{true}, wantID: "c1"},
		"another adopted than there": {seen: refused(well(), stores.ReasonWrongCluster, "another"), known: "c0", adopt: "c2", wantID: "c0"},
		"rolled back, adopted":       {seen: refused(well(), stores.ReasonRolledBack, "earlier"), known: "c1", adopt: "c1", want: []bool{true}, wantID: "c1"},
		"a copy, adopted":            {seen: refused(well(), stores.ReasonDiverged, "a copy"), known: "c1", adopt: "c1", want: []bool{true}, wantID: "c1"},
		"newer":                      {seen: refused(well(), stores.ReasonNewerFormat, "newer"), known: "c1", adopt: "c1", wantID: "c1"},
		"another's that exists, to be adopted": {
			seen:  refused(marked(well(), "near", "of-one-that-exists"), stores.ReasonInUse, "another's"),
			adopt: "c1", wantWhy: `InUse: The prefix is that of the Store "near", which exists: its data cannot be adopted. ` + inUse,
		},
		"emptied, adopted": {seen: refused(well(), stores.ReasonDataReplaced, "empty"), known: "c1", adopt: "c1", want: []bool{true}, wantID: "c1"},
		"too old":          {seen: refused(well(), stores.ReasonTooOld, "too old"), adopt: "c1"},
		"cannot be marked": {seen: refused(well(), stores.ReasonUnclaimed, "not yet"), claimErr: errors.New("read-only"), want: []bool{false}, wantWhy: "ClaimFailed: Read-only"},
		"above another's": {
			seen:     refused(well(), stores.ReasonUnclaimed, "not yet"),
			claimErr: &stores.UnavailableError{Reason: stores.ReasonInUse, Message: "it is another's"}, want: []bool{false},
			wantWhy: "InUse: It is another's. " + inUse,
		},
		"is being deleted": {seen: refused(well(), stores.ReasonUnclaimed, "not yet"), deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "far", Annotations: map[string]string{hostingv1alpha1.AdoptClusterAnnotation: tc.adopt}}}
			store.Status.ClusterID = tc.known
			if tc.deleted {
				store.DeletionTimestamp = &metav1.Time{Time: epoch}
			}
			o := newOne(store, tc.seen)
			o.claimErr = tc.claimErr
			o.look(t, tc.seen)
			if !slices.Equal(o.claims, tc.want) || o.store.Status.ClusterID != tc.wantID {
				t.Errorf("claimed %v for the cluster %q, want %v for %q", o.claims, o.store.Status.ClusterID, tc.want, tc.wantID)
			}
			ready := meta.FindStatusCondition(o.store.Status.Conditions, hostingv1alpha1.StoreReady)
			if got := ready.Reason + ": " + ready.Message; tc.wantWhy != "" && got != tc.wantWhy {
				t.Errorf("it is not ready for the reason %q, want %q", got, tc.wantWhy)
			}
		})
	}
}

// TestAdoptionHoldsOnce has the data of a store that was adopted be lost again.
func TestAdoptionHoldsOnce(t *testing.T) {
	t.Parallel()
	store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "far", Annotations: map[string]string{hostingv1alpha1.AdoptClusterAnnotation: "c1", "keep": "this"}}}
	store.Status.ClusterID = "c1"
	emptied := func() *stores.Snapshot {
		return refused(cluster(answer(1, mebi, nil)), stores.ReasonDataReplaced, "empty")
	}
	o := newOne(store, nil)
	o.look(t, emptied())
	o.look(t, cluster(answer(1, mebi, nil)))
	expect.Equal(t, map[string]string{"keep": "this"}, o.store.Annotations, "annotations")
	o.look(t, emptied())
	if !slices.Equal(o.claims, []bool{true}) {
		t.Errorf("claimed %v, want once", o.claims)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	well := func() *stores.Snapshot { return cluster(answer(1, mebi, nil)) }
	full := well()
	full.NoSpace, full.Reclaiming = true, "annex makes room"
	o := newOne(&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "far"}}, nil)
	for _, seen := range []*stores.Snapshot{refused(well(), stores.ReasonUnclaimed, "not yet"), well(), well(), down(), down(), well(), full, well()} {
		o.look(t, seen)
	}
	want := []string{
		"Normal Claimed Objects are kept in the etcd cluster c1 from now on",
		"Normal Ready Etcd takes reads and writes",
		"Warning Unreachable No endpoint answers: https://etcd-1: refused. Start the etcd, or correct spec.etcd.endpoints or spec.etcd.tls",
		"Normal Ready Etcd takes reads and writes",
		"Warning NoSpace The database reached its quota, so that etcd takes no writes: delete objects or raise the quota. Annex makes room",
		"Normal Ready Etcd takes reads and writes",
		"Normal PressureRelieved There is space for more, and etcd answers in time",
	}
	expect.Equal(t, want, controllertest.Events(o.events), "events")
}

// TestAnnounce logs one entry when a Store becomes not ready, one for each other reason, and one when it is ready again.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	o := newOne(&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "far"}}, nil)
	for _, step := range []struct {
		status  metav1.ConditionStatus
		reason  string
		message string
		want    string
	}{
		{metav1.ConditionTrue, reasonAvailable, "", ""},
		{metav1.ConditionFalse, stores.ReasonConnecting, "", ""},
		{metav1.ConditionFalse, stores.ReasonUnreachable, "EOF", `"The store is not ready" store="far" reason="Unreachable" message="EOF"`},
		{metav1.ConditionFalse, stores.ReasonUnreachable, "reset of 127.0.0.1:47016", ""},
		{metav1.ConditionFalse, stores.ReasonConnecting, "", ""},
		{metav1.ConditionFalse, stores.ReasonUnreachable, "EOF", ""},
		{metav1.ConditionFalse, stores.ReasonWrongCluster, "c2", `"The store is not ready" store="far" reason="WrongCluster" message="c2"`},
		{metav1.ConditionTrue, reasonAvailable, "", `"The store is ready again" store="far"`},
		{metav1.ConditionTrue, reasonAvailable, "", ""},
		{metav1.ConditionFalse, stores.ReasonUnreachable, "EOF", `"The store is not ready" store="far" reason="Unreachable" message="EOF"`},
	} {
		log.Reset()
		o.announce(ctx, "far", &metav1.Condition{Status: step.status, Reason: step.reason, Message: step.message})
		_, got, _ := strings.Cut(strings.TrimSpace(log.String()), "] ")
		expect.Equal(t, step.want, got, step.reason+" "+step.message)
	}
}

func TestFinalizes(t *testing.T) {
	t.Parallel()
	store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{
		Name: "far", Finalizers: []string{"other", hostingv1alpha1.StoreFinalizer}, DeletionTimestamp: &metav1.Time{Time: epoch},
	}}
	store.Status.ClusterID = "c1"
	o := newOne(store, cluster(answer(1, mebi, nil)))
	o.resident = 1
	o.look(t, o.seen)
	if !hasFinalizer(o.store) || o.released != 0 || o.store.Status.Resources != 1 {
		t.Errorf("a store that holds a resource: finalizers %v, released %d times, %d resources", o.store.Finalizers, o.released, o.store.Status.Resources)
	}
	if recorded := controllertest.Events(o.events); len(recorded) == 0 || !strings.Contains(recorded[0], "Warning HoldsResources ") {
		t.Errorf("events %v lack the reason why the store is not deleted", recorded)
	}
	o.resident = 0
	o.look(t, o.seen)
	if !slices.Equal(o.store.Finalizers, []string{"other"}) || o.released != 1 {
		t.Errorf("a store that holds nothing: finalizers %v, released %d times", o.store.Finalizers, o.released)
	}
}
