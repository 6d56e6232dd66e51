// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/random"
)

const (
	oldObjects      = 200
	doomedNamespace = "doomed"
	// migrationTimeout bounds a Migration during which programs are killed.
	migrationTimeout = 6 * time.Minute
	// longOutage is longer than the interval at which the garbage collector discovers resources.
	longOutage = 40 * time.Second
	// longRunPause replaces writePause in a long run, which no other tests run beside.
	longRunPause = 5 * time.Millisecond
)

// annexFlags make a killed annex lose the leadership soon.
var annexFlags = []string{"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms"}

// torture is a group of a main cluster with two kube-apiservers, and an annex that is killed.
type torture struct {
	*fixture
	*history
	cluster *maincluster.Cluster
	etcd    *etcdcluster.Member
	random  *rand.Rand
	// long is whether annex is sometimes down for longOutage.
	long bool
	// uids are those of the objects from before the first Migration that are never deleted.
	uids map[string]string
	// killing has the programs that are being killed.
	killing sync.WaitGroup

	mu   sync.Mutex
	live *annextest.Annex
	own  *clients.Clients
}

// TestTorture moves a group into annex and back while clients write, read and watch it in two versions,
// between which a webhook converts, and while annex with its etcd, the kube-apiservers and their etcd are
// killed at random times. It checks what clients have seen:
//
//   - Every acknowledged write is there exactly once. A write that was under way when a program was
//     killed is there or not.
//   - No other write fails, except for conflicts of objects that are as they were acknowledged.
//   - UIDs of objects that existed before do not change.
//   - Informers see no object as it was before and no deletion that did not happen, and have
//     in the end what a list returns.
//   - The garbage collector deletes the dependents of deleted owners, and no others.
//   - An operator on controller-runtime acts on every write, and deletes nothing that it must keep.
//   - Migrations complete.
//
// It runs one round, which takes a minute or two. make test-long runs more, and makes one of three outages
// of annex long. TORTURE_LOGS is a directory in which the logs are kept.
func TestTorture(t *testing.T) {
	t.Parallel()
	run := random.Start(t, 1)
	r := startTorture(t, run)
	for first := true; run.Next(); first = false {
		r.migrate(hostingv1alpha1.MigrationMove, first)
		r.wantServed(hostingv1alpha1.PublishedBy("annex-system", "annex"))
		r.wantUIDs()
		r.migrate(hostingv1alpha1.MigrationRollback, false)
		r.wantServed("")
		r.wantDiscovered()
		r.wantUIDs()
		if r.failed() {
			break
		}
	}
	r.check()
}

func startTorture(t *testing.T, run *random.Run) *torture {
	t.Helper()
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true}).Members[0]
	options := maincluster.Options{APIServers: 2, EtcdEndpoint: etcd.Endpoint()}
	if dir := os.Getenv("TORTURE_LOGS"); dir != "" {
		options.Dir = filepath.Join(dir, fmt.Sprintf("cluster-%d", run.Seed()))
		expect.NoError(t, os.Mkdir(options.Dir, 0o700))
		options.ControllerManagerFlags = []string{"--vmodule=garbagecollector=5,graph_builder=5"}
	}
	cluster := maincluster.StartForTest(t, options)
	annex := annextest.StartProcess(t, cluster, annexFlags...)
	r := &torture{
		cluster: cluster, etcd: etcd, random: run.Rand(0), long: run.Long, uids: map[string]string{}, live: annex,
		fixture: newFixtureWithoutRights(t, annex, operatorGroup, withSecondVersion(t, convert)), history: newHistory(t, run),
	}
	r.own = r.fixture.own
	r.installOperator()
	r.grant()
	expect.Create(t, r.main.Kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomedNamespace}})
	for i := range oldObjects {
		name := fmt.Sprintf("old-%d", i)
		r.uids[name] = string(r.create("default", name, nil).GetUID())
	}
	for i := range 20 {
		r.create(doomedNamespace, fmt.Sprintf("doomed-%d", i), nil)
	}
	r.create("default", "counter", nil)
	for i := range 3 {
		resource := r.resource()
		if i == 1 {
			resource.Version = secondVersion
		}
		r.startInformer(fmt.Sprintf("informer %d", i), r.client(fmt.Sprintf("informer-%d", i)).Dynamic, resource, i == 0)
	}
	r.watchDeletions(r.client("informer-owned"), ownedLabel, r.wantOwnerDeleted)
	r.watchDeletions(r.client("informer-copies"), copyLabel, r.wantKept)
	for i := range writers {
		resource, newWidget := r.resource(), r.newWidget
		if i%2 == 1 {
			resource.Version, newWidget = secondVersion, r.newSecond
		}
		w := &client{
			history: r.history, name: fmt.Sprintf("w%d", i), random: run.Rand(uint64(i + 1)), newWidget: newWidget,
			widgets: r.client(fmt.Sprintf("writer-%d", i)).Dynamic.Resource(resource).Namespace("default"),
		}
		r.start(w.run)
	}
	o := &owners{
		history: r.history, random: run.Rand(100), fixture: r.fixture, clients: r.client("owners"),
	}
	r.start(o.run)
	r.runOperator()
	b := &broadcaster{
		history: r.history, random: run.Rand(200), client: r.broadcasts(r.client("broadcaster")),
	}
	r.start(b.run)
	t.Cleanup(func() {
		r.stop()
		r.killing.Wait()
		r.report()
	})
	return r
}

// client returns clients with connections of their own.
func (r *torture) client(user string) *clients.Clients {
	r.fixture.Helper()
	config, err := r.cluster.ConfigFor(user, "system:masters")
	expect.NoError(r.fixture, err)
	config.Timeout = 0
	return clients.For(r.fixture, config)
}

// migrate runs a Migration, and kills annex, a kube-apiserver and their etcd meanwhile.
func (r *torture) migrate(operation hostingv1alpha1.MigrationOperation, deleteNamespace bool) {
	r.fixture.Helper()
	t := r.fixture.T
	var name string
	poll.UntilNoError(t, "create a Migration", func() error {
		created, err := r.annexClients().Hosting.HostingV1alpha1().Migrations().Create(t.Context(), &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"},
			Spec:       hostingv1alpha1.MigrationSpec{Group: r.group, Operation: operation},
		}, metav1.CreateOptions{})
		name = created.GetName()
		return err
	})
	phases := []hostingv1alpha1.MigrationPhase{
		hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing,
		hostingv1alpha1.MigrationVerifying, hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving,
	}
	if operation == hostingv1alpha1.MigrationRollback {
		phases[2], phases[3], phases[5] = phases[3], phases[2], hostingv1alpha1.MigrationCleaning
	}
	var down time.Duration
	if r.long && r.random.IntN(3) == 0 {
		down = longOutage
	}
	killed := r.random.IntN(2)
	events := []*event{
		r.newEvent(phases, "kill annex", func() { r.restartAnnex(down) }),
		r.newEvent(phases, "kill a kube-apiserver", func() { r.restartAPIServer(killed) }),
		r.newEvent(phases, "kill the main cluster's etcd", r.restartEtcd),
	}
	if deleteNamespace {
		events = append(events, r.newEvent(phases, "delete a namespace", r.deleteNamespace))
	}
	last := r.follow(name, phases, events)
	for _, event := range events {
		r.trigger(event, "after the end")
	}
	r.killing.Wait()
	if last == nil || last.Status.Phase != hostingv1alpha1.MigrationCompleted {
		t.Fatalf("%s did not complete: %+v", operation, last)
	}
	t.Logf("%s took %s", operation, last.Status.CompletionTime.Sub(last.Status.StartTime.Time))
}

// event is what happens in a phase of a Migration, or some time later.
type event struct {
	what  string
	phase int
	after time.Duration
	do    func()

	due  time.Time
	done bool
}

func (r *torture) newEvent(phases []hostingv1alpha1.MigrationPhase, what string, do func()) *event {
	limit := 300 * time.Millisecond
	if r.random.IntN(3) == 0 {
		limit = 3 * time.Second
	}
	return &event{what: what, phase: r.random.IntN(len(phases)), after: time.Duration(r.random.Int64N(int64(limit))), do: do}
}

func (r *torture) trigger(e *event, when string) {
	if e.done {
		return
	}
	e.done = true
	r.fixture.Logf("%s %s %s", time.Now().Format("15:04:05.000"), e.what, when)
	r.killing.Go(e.do)
}

// follow waits for the end of a Migration, and triggers events.
func (r *torture) follow(name string, phases []hostingv1alpha1.MigrationPhase, events []*event) (last *hostingv1alpha1.Migration) {
	seen, began := "", time.Now()
	_ = wait.PollUntilContextTimeout(r.fixture.Context(), 20*time.Millisecond, migrationTimeout, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		migration, err := r.annexClients().Hosting.HostingV1alpha1().Migrations().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			last = migration
			now := string(last.Status.Phase)
			if complete := meta.FindStatusCondition(last.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil && complete.Reason == hostingv1alpha1.MigrationRetrying {
				now += ": " + complete.Message
			}
			if now != seen {
				r.fixture.Logf("%s %s %s", time.Now().Format("15:04:05.000"), last.Spec.Operation, now)
				seen = now
			}
		}
		for _, e := range events {
			if last != nil && e.due.IsZero() && slices.Index(phases, last.Status.Phase) >= e.phase {
				e.due = time.Now().Add(e.after)
			}
			if !e.due.IsZero() && !time.Now().Before(e.due) {
				r.trigger(e, fmt.Sprintf("%s after the phase %s, in %s", e.after.Round(time.Millisecond), phases[e.phase], seen))
			}
		}
		return last != nil && last.Status.Phase.Finished(), nil
	})
	r.fixture.Logf("%s finished %s after %s", time.Now().Format("15:04:05.000"), name, time.Since(began).Round(time.Millisecond))
	return last
}

func (r *torture) annexClients() *clients.Clients {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own
}

// restartAnnex kills annex, and starts it again on its data some time later.
func (r *torture) restartAnnex(down time.Duration) {
	defer r.outage("annex")()
	t, killed := r.fixture.T, r.live
	killed.Process.Kill()
	killed.Balancer.Remove(killed.Address())
	r.logAnnex(killed)
	time.Sleep(down)
	started, err := killed.LaunchProcess(t.Context(), killed.DataDir, annexFlags...)
	if err != nil {
		t.Errorf("start annex again: %v", err)
		return
	}
	own, err := clients.New(started.AnnexConfig)
	if err != nil {
		t.Error(err)
	}
	r.mu.Lock()
	r.live, r.own, r.fixture.own = started, own, own
	r.mu.Unlock()
	t.Cleanup(func() {
		_ = started.Shutdown()
		r.logAnnex(started)
	})
	r.untilServed()
}

// logAnnex keeps the log of a process.
func (r *torture) logAnnex(annex *annextest.Annex) {
	if dir := os.Getenv("TORTURE_LOGS"); dir != "" {
		_ = os.WriteFile(fmt.Sprintf("%s/annex-%d.log", dir, annex.Process.PID()), []byte(annex.Process.Stderr()), 0o600)
	}
}

func (r *torture) restartAPIServer(i int) {
	defer r.outage("kube-apiserver")()
	if err := r.cluster.RestartAPIServer(r.fixture.Context(), i); err != nil {
		r.fixture.Errorf("start a kube-apiserver again: %v", err)
		return
	}
	r.untilServed()
}

func (r *torture) restartEtcd() {
	defer r.outage("etcd")()
	r.etcd.Kill(r.fixture)
	r.etcd.Start(r.fixture)
	r.untilServed()
}

// untilServed waits until all kube-apiservers serve hosting.annex.dev and each version of the group: they
// check the APIServices one by one.
func (r *torture) untilServed() {
	for i := range 2 {
		if err := r.serves(r.cluster.ConfigOf(i)); err != nil {
			r.fixture.Errorf("wait until kube-apiserver %d serves again: %v", i, err)
		}
	}
}

func (r *torture) serves(config *restclient.Config) error {
	direct, err := clients.New(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(r.fixture.Context(), 100*time.Millisecond, poll.Timeout, true, func(ctx context.Context) (bool, error) {
		second := r.resource()
		second.Version = secondVersion
		_, last = direct.Hosting.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
		for _, resource := range []dynamic.ResourceInterface{direct.Dynamic.Resource(r.resource()), direct.Dynamic.Resource(second), r.broadcasts(direct)} {
			if last == nil {
				_, last = resource.List(ctx, metav1.ListOptions{Limit: 1})
			}
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

func (r *torture) deleteNamespace() {
	r.doomed.Store(true)
	poll.UntilNoError(r.fixture, "delete a namespace", func() error {
		err := r.main.Kube.CoreV1().Namespaces().Delete(r.fixture.Context(), doomedNamespace, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

// wantDiscovered waits until each kube-apiserver discovers the group in the main cluster.
func (r *torture) wantDiscovered() {
	r.fixture.Helper()
	for i := range 2 {
		direct, err := clients.New(r.cluster.ConfigOf(i))
		expect.NoError(r.fixture, err)
		poll.Until(r.fixture, fmt.Sprintf("kube-apiserver %d discovers the group", i), func() string { return r.undiscovered(direct, false) })
	}
}

// wantUIDs fails unless the objects from before the first Migration have their UIDs.
func (r *torture) wantUIDs() {
	r.fixture.Helper()
	got := map[string]string{}
	for _, object := range r.list().Items {
		if _, old := r.uids[object.GetName()]; old {
			got[object.GetName()] = string(object.GetUID())
		}
	}
	expect.Equal(r.fixture, r.uids, got, "UIDs of the objects from before")
}

func (r *torture) list() *unstructured.UnstructuredList {
	r.fixture.Helper()
	var list *unstructured.UnstructuredList
	poll.UntilNoError(r.fixture, "list all widgets", func() error {
		var err error
		list, err = r.widgets().List(r.fixture.Context(), metav1.ListOptions{})
		return err
	})
	return list
}

// check compares what is there in the end with what was acknowledged.
func (r *torture) check() {
	r.fixture.Helper()
	expect.Gone(r.fixture, r.main.Kube.CoreV1().Namespaces(), doomedNamespace)
	r.stop()
	r.checkObjects(r.list().Items)
	r.checkInformers(r.list)
	r.checkBroadcasts()
	poll.Until(r.fixture, "the garbage collector has deleted the dependents of deleted owners", func() string {
		owned, err := r.main.Kube.CoreV1().ConfigMaps("default").List(r.fixture.Context(), metav1.ListOptions{LabelSelector: ownedLabel})
		if err != nil {
			return err.Error()
		}
		return r.checkOwned(r.list().Items, owned.Items)
	})
}
