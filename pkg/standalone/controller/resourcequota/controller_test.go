// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// metadata is objects that a test has come and go.
type metadata struct {
	handler metadatainformers.Handler
	settled chan struct{}

	mu     sync.Mutex
	states map[schema.GroupResource]metadatainformers.State
}

func (m *metadata) AddHandler(handler metadatainformers.Handler) { m.handler = handler }
func (m *metadata) Settled() cache.DoneChecker                   { return m }
func (m *metadata) Name() string                                 { return "settled" }
func (m *metadata) Done() <-chan struct{}                        { return m.settled }

func (m *metadata) State(resource schema.GroupResource) (metadatainformers.State, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, served := m.states[resource]
	return state, served
}

func (m *metadata) set(resource metadatainformers.Resource, synced, current bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[resource.GroupResource()] = metadatainformers.State{Resource: resource, Synced: synced, Current: current}
}

var (
	secrets = metadatainformers.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("secrets"), Namespaced: true}
	widgets = metadatainformers.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Namespaced: true}
)

func object(namespace, name, uid string) *metadatainformers.Object {
	return &metadatainformers.Object{Namespace: namespace, Name: name, UID: types.UID(uid)}
}

func quotaOf(hard ...string) *corev1.ResourceQuota {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for _, name := range hard {
		quota.Spec.Hard[corev1.ResourceName(name)] = apiresource.MustParse("9")
	}
	return quota
}

// annex is the controller over a fake server, running until the test ends.
type annex struct {
	*fake.Clientset
	metadata *metadata
}

func start(t *testing.T, quota *corev1.ResourceQuota, reactors ...clienttesting.ReactionFunc) *annex {
	t.Helper()
	a := &annex{Clientset: fake.NewClientset(quota), metadata: &metadata{settled: make(chan struct{}), states: map[schema.GroupResource]metadatainformers.State{}}}
	for _, reactor := range reactors {
		a.PrependReactor("update", "resourcequotas", reactor)
	}
	factory := informers.NewSharedInformerFactory(a.Clientset, 0)
	controller, err := New(Config{AnnexQuotas: a.CoreV1(), Quotas: factory.Core().V1().ResourceQuotas().Informer(), Metadata: a.metadata})
	expect.NoError(t, err)
	controllertest.Run(t, controller, 2, factory)
	a.metadata.set(secrets, true, true)
	close(a.metadata.settled)
	return a
}

// shows waits until the controller is idle and returns the usage in the quota.
func (a *annex) shows(t *testing.T) string {
	t.Helper()
	time.Sleep(2 * interval)
	synctest.Wait()
	quota := expect.Get(t, a.CoreV1().ResourceQuotas("ns"), "q")
	var shown []string
	for name := range quota.Status.Hard {
		used, known := quota.Status.Used[name]
		if !known {
			shown = append(shown, string(name)+"=?")
			continue
		}
		shown = append(shown, fmt.Sprintf("%s=%s", name, used.String()))
	}
	slices.Sort(shown)
	return strings.Join(shown, " ")
}

// charge adds one to the used amount of a quota, as admission does.
func (a *annex) charge(t *testing.T, name corev1.ResourceName) {
	t.Helper()
	quota := expect.Get(t, a.CoreV1().ResourceQuotas("ns"), "q")
	used := quota.Status.Used[name]
	used.Add(apiresource.MustParse("1"))
	quota.Status.Used[name] = used
	_, err := a.CoreV1().ResourceQuotas("ns").UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	expect.NoError(t, err)
}

func wantShown(t *testing.T, a *annex, want string) {
	t.Helper()
	if got := a.shows(t); got != want {
		t.Errorf("the quota shows %s, want %s", got, want)
	}
}

func TestCountsWhatComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := start(t, quotaOf("secrets", "count/secrets", "requests.cpu", "count/events", "pods"))
		wantShown(t, a, "count/events=? count/secrets=0 pods=0 requests.cpu=? secrets=0")
		a.metadata.handler.Added(secrets, object("ns", "a", "1"))
		a.metadata.handler.Added(secrets, object("ns", "b", "2"))
		a.metadata.handler.Added(secrets, object("other", "c", "3"))
		wantShown(t, a, "count/events=? count/secrets=2 pods=0 requests.cpu=? secrets=2")
		a.metadata.handler.Updated(secrets, object("ns", "b", "2"), object("ns", "b", "4"))
		a.metadata.handler.Deleted(secrets, object("ns", "a", "1"))
		wantShown(t, a, "count/events=? count/secrets=1 pods=0 requests.cpu=? secrets=1")
	})
}

func TestKeepsChargesUntilTheyLandOrNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := start(t, quotaOf("secrets"))
		wantShown(t, a, "secrets=0")
		a.charge(t, "secrets")
		a.charge(t, "secrets")
		a.metadata.handler.Added(secrets, object("ns", "a", "1"))
		wantShown(t, a, "secrets=2")
		a.metadata.handler.Deleted(secrets, object("ns", "a", "1"))
		wantShown(t, a, "secrets=1")
		time.Sleep(landingPeriod)
		wantShown(t, a, "secrets=0")
	})
}

func TestCustomResourcesThatComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := start(t, quotaOf("count/widgets.example.com"))
		wantShown(t, a, "count/widgets.example.com=0")
		a.metadata.set(widgets, false, false)
		a.metadata.handler.Added(widgets, object("ns", "a", "1"))
		// As many are known, but maybe not all.
		wantShown(t, a, "count/widgets.example.com=0")
		a.metadata.set(widgets, true, true)
		a.metadata.handler.Synced(widgets)
		wantShown(t, a, "count/widgets.example.com=1")
		a.metadata.handler.Dropped(widgets, slices.Values([]*metadatainformers.Object{object("ns", "a", "1")}))
		wantShown(t, a, "count/widgets.example.com=0")
	})
}

func TestDoesNotShowWhatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := start(t, quotaOf("secrets"))
		wantShown(t, a, "secrets=0")
		a.metadata.set(widgets, false, false)
		quota := quotaOf("secrets", "count/widgets.example.com")
		quota.Status = corev1.ResourceQuotaStatus{Hard: quotaOf("secrets").Spec.Hard, Used: corev1.ResourceList{"secrets": apiresource.MustParse("0")}}
		expect.Update(t, a.CoreV1().ResourceQuotas("ns"), quota)
		wantShown(t, a, "count/widgets.example.com=? secrets=0")
	})
}

func TestScopedQuotasCountNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quota := quotaOf("pods", "count/secrets")
		quota.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
		a := start(t, quota)
		a.metadata.handler.Added(secrets, object("ns", "a", "1"))
		wantShown(t, a, "count/secrets=0 pods=0")
	})
}

func TestTriesAgain(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"conflict": apierrors.NewConflict(corev1.Resource("resourcequotas"), "q", nil),
		"failure":  errors.New("away"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				failures := 3
				a := start(t, quotaOf("secrets"), func(clienttesting.Action) (bool, runtime.Object, error) {
					if failures--; failures >= 0 {
						return true, nil, failure
					}
					return false, nil, nil
				})
				a.metadata.handler.Added(secrets, object("ns", "a", "1"))
				time.Sleep(time.Minute)
				wantShown(t, a, "secrets=1")
			})
		})
	}
}

// What is gone from namespaces without quotas is not remembered.
func TestLedgerForgets(t *testing.T) {
	t.Parallel()
	counted := true
	l := &ledger{counted: func(string) bool { return counted }, changed: func(place) {}, tallies: map[place]tally{}}
	p := place{secrets.GroupResource(), "ns"}
	for _, counted = range []bool{true, false} {
		l.Added(secrets, object("ns", "a", "1"))
		l.Deleted(secrets, object("ns", "a", "1"))
	}
	l.Added(metadatainformers.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}, object("", "ns", "2"))
	if l.at(p) != (tally{}) || len(l.tallies) != 0 {
		t.Errorf("remembered: %v", l.tallies)
	}
}
