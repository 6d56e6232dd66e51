// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

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
	// migrationTimeout bounds a Migration during which programs are killed, or whose switch a busy machine undoes seven times.
	migrationTimeout = 20 * time.Minute
	// longRunPause replaces writePause in a long run, which no other tests run beside.
	longRunPause = 5 * time.Millisecond
)

// torture is a group of a main cluster with two kube-apiservers, and an annex with two replicas, or with one and an
// embedded etcd.
type torture struct {
	*fixture
	*history
	cluster      *maincluster.Cluster
	installation *annextest.Installation
	// flags are the flags of replicas.
	flags    []string
	mainEtcd *etcdcluster.Member
	// annexEtcd is nil if it is embedded.
	annexEtcd *etcdcluster.Member
	random    *rand.Rand
	// long is set if annex is sometimes down for longOutage.
	long      bool
	victim    *corev1.ConfigMap
	gadgeteer *gadgeteer
	// killing has the faults under way.
	killing                                            sync.WaitGroup
	annexLock, serverLock, mainEtcdLock, annexEtcdLock sync.Mutex

	mu       sync.Mutex
	replicas []*annextest.Annex
	own      []*clients.Clients
	turn     int
}

// TestTorture moves a group into annex and back while clients write, read and watch it in two versions,
// between which a webhook converts, and while annex, the kube-apiservers and the etcds of both fail at random times
// in all ways of faults. One resource has a schema of 1 MB, objects that are as large as etcd takes, and webhooks that
// annex must be exempt from. A tenant forges metadata, and others write into both etcds. It checks what clients have
// seen:
//
//   - Every acknowledged write is there exactly once. A write that was under way during a fault is there or not.
//   - No other request fails, except for conflicts of objects that are as they were acknowledged.
//   - UIDs of objects that existed before do not change.
//   - No response has a resource version below one that any client has seen before the request: the group is
//     served by one side.
//   - Lists in pages, at any and at exact versions, and the events of watches show each object as it was written at
//     that version. No watch misses an acknowledged write.
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
		r.migrate(hostingv1alpha1.MigrationRollback, false)
		r.wantServed("")
		r.wantDiscovered()
		if r.failed() {
			break
		}
	}
	r.check()
}

func startTorture(t *testing.T, run *random.Run) *torture {
	t.Helper()
	mainEtcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true}).Members[0]
	options := maincluster.Options{APIServers: 2, EtcdEndpoint: mainEtcd.Endpoint()}
	if dir := os.Getenv("TORTURE_LOGS"); dir != "" {
		options.Dir = filepath.Join(dir, fmt.Sprintf("cluster-%d", run.Seed()))
		expect.NoError(t, os.Mkdir(options.Dir, 0o700))
		options.ControllerManagerFlags = []string{"--vmodule=garbagecollector=5,graph_builder=5"}
	}
	cluster := maincluster.StartForTest(t, options)
	r := &torture{
		cluster: cluster, installation: annextest.InstallForTest(t, cluster), mainEtcd: mainEtcd, random: run.Rand(0), long: run.Long,
		history: newHistory(t, 2*writePause), // it runs more servers than other tests
	}
	if run.Long {
		r.pause = longRunPause
	}
	_, err := mainEtcd.Client(t).Compact(t.Context(), 2) // as after ten minutes of any cluster
	expect.NoError(t, err)
	r.startReplicas()
	r.fixture = newFixtureWithoutRights(t, r.replicas[0], operatorGroup, withSecondVersion(t, convert))
	r.installOperator()
	r.installGadgets()
	r.grant(exemption())
	expect.Create(t, r.main.Kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomedNamespace}})
	for i := range oldObjects {
		name := fmt.Sprintf("old-%d", i)
		r.uids[name] = string(r.create("default", name, nil).GetUID())
	}
	for i := range 20 {
		r.create(doomedNamespace, fmt.Sprintf("doomed-%d", i), nil)
	}
	r.create("default", "counter", nil)
	r.create("default", besideFull, nil)
	r.victim = r.fixture.victim()
	r.startReaders(run)
	r.startWriters(run)
	t.Cleanup(func() {
		r.stop()
		r.killing.Wait()
		r.report()
	})
	return r
}

// startReplicas starts annex: one in three long runs has one replica with the embedded etcd.
func (r *torture) startReplicas() {
	t := r.history.T
	count := 1
	if !r.long || r.random.IntN(3) > 0 {
		count = 2
		r.annexEtcd = etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true, QuotaBytes: storeQuota}).Members[0]
		r.flags = []string{"--etcd-servers=" + r.annexEtcd.Endpoint(), "--shutdown-delay-duration=0s"}
	}
	r.replicas, r.own = make([]*annextest.Annex, count), make([]*clients.Clients, count)
	t.Cleanup(func() {
		for _, replica := range r.replicas {
			if replica != nil {
				_ = replica.Shutdown()
				r.logAnnex(replica)
			}
		}
		expect.Succeeds(t, r.installation.Uninstall(context.Background()))
	})
	for i := range r.replicas {
		expect.NoError(t, r.launch(i, t.TempDir()))
	}
	expect.NoError(t, r.installation.WaitHosting(t.Context()))
}

func (r *torture) startReaders(run *random.Run) {
	second := r.resource()
	second.Version = secondVersion
	for i, resource := range []schema.GroupVersionResource{r.resource(), second, r.resource()} {
		r.startInformer(fmt.Sprintf("informer %d", i), r.client(fmt.Sprintf("informer-%d", i)).Dynamic, resource, i == 0)
	}
	r.watchDeletions(r.client("informer-owned"), ownedLabel, r.wantOwnerDeleted)
	r.watchDeletions(r.client("informer-copies"), copyLabel, r.wantKept)
	all := &watcher{history: r.history, name: "a watch of all", widgets: r.client("watcher-all").Dynamic.Resource(r.resource())}
	r.start(all.run)
	one := &watcher{history: r.history, name: "a watch of a namespace", widgets: r.client("watcher").Dynamic.Resource(second).Namespace("default")}
	r.start(one.run)
	lists := &reader{history: r.history, pause: 10 * r.pause, random: run.Rand(300), widgets: r.client("reader").Dynamic.Resource(r.resource()).Namespace("default")}
	r.start(lists.run)
}

func (r *torture) startWriters(run *random.Run) {
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
	r.gadgeteer = &gadgeteer{
		history: r.history, random: run.Rand(400), fixture: r.fixture, user: "gadgeteer",
		gadgets: r.client("gadgeteer").Dynamic.Resource(r.resourceOf("Gadget")).Namespace("default"),
	}
	r.start(r.gadgeteer.run)
	r.startOthers(r.victim)
}

// client returns clients with connections of their own.
func (r *torture) client(user string) *clients.Clients {
	r.fixture.Helper()
	config, err := r.cluster.ConfigFor(user, "system:masters")
	expect.NoError(r.fixture, err)
	config.Timeout = 0
	return clients.For(r.fixture, config)
}

// migrate runs a Migration during some faults.
func (r *torture) migrate(operation hostingv1alpha1.MigrationOperation, deleteNamespace bool) {
	r.fixture.Helper()
	t := r.fixture.T
	var name string
	poll.UntilNoError(t, "create a Migration", func() error {
		created, err := r.annexClients().Hosting.HostingV1alpha1().Migrations().Create(t.Context(), &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"},
			Spec:       hostingv1alpha1.MigrationSpec{Group: r.group, Operation: operation, ExemptWebhooks: true},
		}, metav1.CreateOptions{})
		name = created.GetName()
		return err
	})
	phases := []hostingv1alpha1.MigrationPhase{
		hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing,
		hostingv1alpha1.MigrationVerifying, hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving,
	}
	if operation == hostingv1alpha1.MigrationRollback {
		r.exactFrom.Store(math.MaxInt64)
		phases[2], phases[3], phases[5] = phases[3], phases[2], hostingv1alpha1.MigrationCleaning
	}
	faults := r.faults()
	r.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	var events []*event
	for _, fault := range faults[:faultsOfMigration] {
		events = append(events, r.newEvent(phases, fault.what, func() {
			fault.lock.Lock()
			defer fault.lock.Unlock()
			fault.do()
		}))
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
	if operation == hostingv1alpha1.MigrationRollback {
		r.exactFrom.Store(r.floor())
	}
	t.Logf("%s took %s", operation, last.Status.CompletionTime.Sub(last.Status.StartTime.Time))
}

// event calls do once, some time after a Migration has reached a phase.
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
	_ = wait.PollUntilContextTimeout(r.fixture.Context(), 50*time.Millisecond, migrationTimeout, true, func(ctx context.Context) (bool, error) {
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

// annexClients returns clients of each replica in turn.
func (r *torture) annexClients() *clients.Clients {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	return r.own[r.turn%len(r.own)]
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

// check compares what is there in the end with what was acknowledged.
func (r *torture) check() {
	r.fixture.Helper()
	expect.Gone(r.fixture, r.main.Kube.CoreV1().Namespaces(), doomedNamespace)
	r.stop()
	r.checkObjects(r.list().Items)
	r.checkInformers(r.list)
	r.checkReads()
	gadgets, err := r.main.Dynamic.Resource(r.resourceOf("Gadget")).List(r.fixture.Context(), metav1.ListOptions{})
	expect.NoError(r.fixture, err)
	r.gadgeteer.check(gadgets.Items)
	victim := expect.Get(r.fixture, r.main.Kube.CoreV1().ConfigMaps("default"), r.victim.Name)
	expect.Equal(r.fixture, r.victim.OwnerReferences, victim.OwnerReferences, "owners of another tenant's object")
	r.checkBroadcasts()
	poll.Until(r.fixture, "the garbage collector has deleted the dependents of deleted owners", func() string {
		owned, err := r.main.Kube.CoreV1().ConfigMaps("default").List(r.fixture.Context(), metav1.ListOptions{LabelSelector: ownedLabel})
		if err != nil {
			return err.Error()
		}
		return r.checkOwned(r.list().Items, owned.Items)
	})
}
