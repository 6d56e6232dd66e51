// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var paused = schema.GroupVersionResource{Group: "paused.example.com", Version: "v1", Resource: "things"}

// manyWrites exceed what a move adds to the main cluster's revision for later writes.
const manyWrites = 1500

// testPausedLeader stops the leader while it observes a group that it has moved, and again after it has frozen the
// group for its way back.
//
// The main cluster goes on meanwhile, and watches there send clients its revision in bookmarks: the resource
// versions in annex must not be below it in the end, or watches that continue from there are silent.
//
// On the way back the successor thaws the group, and clients write. When the leader goes on, it must not make the
// switch for which it has frozen.
func testPausedLeader(t *testing.T, f *fleet) {
	f.scale(t, 2)
	f.ready(t)
	main := clients.For(t, mainCluster.Config)
	expect.Create(t, main.CRDs(), crds.New(paused.Group, paused.Resource, paused.Version))
	f.allowMoves(t, paused.Group)
	things := main.Dynamic.Resource(paused).Namespace(metav1.NamespaceDefault)
	create := func(name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": paused.GroupVersion().String(), "kind": "Thing", "metadata": map[string]any{"name": name},
		}}
		_, err := things.Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	poll.UntilNoError(t, "the main cluster serves the group", func() error { return create("old") })
	leader, migrations := f.leaderAndMigrations(t)
	migrate := func(operation hostingv1alpha1.MigrationOperation) string {
		created := expect.Create(t, migrations, &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "paused-"}, Spec: hostingv1alpha1.MigrationSpec{Group: paused.Group, Operation: operation},
		})
		return created.Name
	}
	until := func(name, what string, done func(*hostingv1alpha1.Migration) bool) {
		poll.Until(t, what, func() string {
			current, err := migrations.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || !done(current) {
				return fmt.Sprintf("%v: %+v", err, current)
			}
			return ""
		})
	}
	is := func(phase hostingv1alpha1.MigrationPhase) func(*hostingv1alpha1.Migration) bool {
		return func(m *hostingv1alpha1.Migration) bool { return m.Status.Phase == phase }
	}
	move := migrate(hostingv1alpha1.MigrationMove)
	var switched time.Time
	until(move, "annex observes the group", func(m *hostingv1alpha1.Migration) bool {
		if m.Status.SwitchTime != nil {
			switched = m.Status.SwitchTime.Time
		}
		return is(hostingv1alpha1.MigrationObserving)(m)
	})
	expect.NoError(t, leader.Process.Signal(syscall.SIGSTOP))
	// Three seconds after the switch it raises resource versions, and its successor does not have to.
	isEarly := time.Since(switched) < 3*time.Second
	above := writeMany(t, main)
	expect.NoError(t, leader.Process.Signal(syscall.SIGCONT))
	until(move, "the group is moved", is(hostingv1alpha1.MigrationCompleted))
	listed, err := things.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if got, err := strconv.ParseInt(listed.GetResourceVersion(), 10, 64); err != nil || isEarly && got <= above {
		t.Errorf("annex's resource version is %s (%v), and watches in the main cluster may have seen %d", listed.GetResourceVersion(), err, above)
	}

	leader, migrations = f.leaderAndMigrations(t)

	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{f.etcd}})
	expect.NoError(t, err)
	defer etcd.Close()
	frozen := keys.Frozen("/annex", paused.GroupResource())
	rollback := migrate(hostingv1alpha1.MigrationRollback)
	for freezing := range etcd.Watch(t.Context(), frozen) {
		if len(freezing.Events) > 0 {
			break
		}
	}
	expect.NoError(t, leader.Process.Signal(syscall.SIGSTOP))
	defer func() { _ = leader.Process.Signal(syscall.SIGCONT) }()
	poll.Until(t, "the successor has thawed the group", func() string {
		found, err := etcd.Get(t.Context(), frozen)
		if err != nil || found.Count > 0 {
			return fmt.Sprintf("%v, %+v", err, found)
		}
		return ""
	})
	var acknowledged []string
	write := func() {
		name := fmt.Sprintf("new-%d", len(acknowledged))
		if err := create(name); err == nil || apierrors.IsAlreadyExists(err) {
			acknowledged = append(acknowledged, name)
		}
	}
	write()
	expect.NoError(t, leader.Process.Signal(syscall.SIGCONT))
	for ended := time.Now().Add(5 * time.Second); time.Now().Before(ended); {
		write()
		time.Sleep(requestPause)
	}
	until(rollback, "the group is back", is(hostingv1alpha1.MigrationCompleted))
	list, err := things.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	present := map[string]bool{}
	for i := range list.Items {
		present[list.Items[i].GetName()] = true
	}
	t.Logf("%d writes were acknowledged", len(acknowledged))
	for _, name := range append(acknowledged, "old") {
		if !present[name] {
			t.Errorf("%s was acknowledged, and is not there", name)
		}
	}
}

// leaderAndMigrations returns the leader, and a client of another replica.
func (f *fleet) leaderAndMigrations(t *testing.T) (*replica, hostingclient.MigrationInterface) {
	t.Helper()
	var leader *replica
	poll.UntilDone(t, "one leader", func() (bool, string) {
		leaders := f.leaders(t)
		if len(leaders) == 1 {
			leader = leaders[0]
		}
		return len(leaders) == 1, fmt.Sprintf("%d leaders", len(leaders))
	})
	other := f.running[slices.IndexFunc(f.running, func(r *replica) bool { return r != leader })]
	return leader, clients.For(t, other.AnnexConfig).Hosting.HostingV1alpha1().Migrations()
}

// writeMany makes writes in the main cluster. It returns the revision after the last one of which the Lease of the
// controllers had the same holder: a successor raises resource versions above the revision of that time.
func writeMany(t *testing.T, main *clients.Clients) int64 {
	t.Helper()
	configMaps := main.Kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	var writing errgroup.Group
	var highest atomic.Int64
	for i := range 16 {
		writing.Go(func() error {
			name := fmt.Sprintf("written-%d", i)
			if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			for n := range manyWrites / 16 {
				written, err := configMaps.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
				if err != nil {
					return err
				}
				revision, err := strconv.ParseInt(written.ResourceVersion, 10, 64)
				if err != nil {
					return err
				}
				for seen := highest.Load(); seen < revision && !highest.CompareAndSwap(seen, revision); {
					seen = highest.Load()
				}
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- writing.Wait() }()
	var above int64
	for held, done := holder(t), false; !done; {
		select {
		case err := <-ended:
			expect.NoError(t, err)
			done = true
		case <-time.After(50 * time.Millisecond):
		}
		if seen := highest.Load(); holder(t) == held {
			above = seen
		}
	}
	return above
}

// allowMoves grants the rights that kubectl annex move grants.
func (f *fleet) allowMoves(t *testing.T, group string) {
	t.Helper()
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	rule := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: all}
	}
	// The controller that aggregates ClusterRoles does not run.
	role := expect.Create(t, kube(t, mainCluster.Config).RbacV1().ClusterRoles(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-hosted-" + group},
		Rules: []rbacv1.PolicyRule{
			rule(group, "*"), rule("apiextensions.k8s.io", "customresourcedefinitions"), rule("", "configmaps"),
			rule("admissionregistration.k8s.io", "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
		},
	})
	expect.Create(t, kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: annextest.Namespace, Name: annextest.ServiceAccount}},
	})
}
