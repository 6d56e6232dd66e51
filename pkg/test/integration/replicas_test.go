// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// auditControllers records writes of the controllers, the only loopback clients that write
// these.
const auditControllers = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:apiserver"]
  verbs: [create, update, patch, delete]
  resources:
  - {group: hosting.annex.dev, resources: [hostedresources, hostedresources/status, stores/status]}
- level: None
`

// replicaFlags returns the flags of a server on an etcd that others use too. Its Lease lets a leader on
// a busy machine reach etcd late; one that stops releases it.
func replicaFlags(endpoint string, flags ...string) []string {
	return append([]string{"--etcd-servers=" + endpoint, "--leader-elect-lease-duration=40s", "--leader-elect-renew-deadline=30s"}, flags...)
}

// replica is one of several servers on the same etcd.
type replica struct {
	*annex
	log string
}

// startReplica starts a server on an etcd, with its own data directory.
func startReplica(t *testing.T, endpoint string) *replica {
	t.Helper()
	log := filepath.Join(t.TempDir(), "audit.log")
	server := testserver.Start(t, replicaFlags(endpoint,
		"--audit-policy-file="+writeFile(t, "audit.yaml", []byte(auditControllers)), "--audit-log-path="+log)...)
	return &replica{annex: newAnnex(t, server), log: log}
}

// writes returns the times of the writes of the replica's controllers.
func (r *replica) writes(t *testing.T) []time.Time {
	t.Helper()
	file, err := os.Open(r.log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it wrote nothing yet
	}
	expect.NoError(t, err)
	defer file.Close()
	var times []time.Time
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var event auditv1.Event
		expect.NoError(t, json.Unmarshal(lines.Bytes(), &event), "read the audit log")
		times = append(times, event.RequestReceivedTimestamp.Time)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// leader returns the holder of the Lease of the controllers. An etcd on a busy machine may
// answer late: it reads again until there is a Lease.
func (r *replica) leader(t *testing.T) string {
	t.Helper()
	var lease *coordinationv1.Lease
	poll.UntilNoError(t, "the Lease of the controllers", func() (err error) {
		lease, err = r.Kube.CoordinationV1().Leases("annex-system").Get(t.Context(), "annex-controllers", metav1.GetOptions{})
		return err
	})
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// waitForLeader waits until there is a leader different from other.
func (r *replica) waitForLeader(t *testing.T, other string) (holder string) {
	t.Helper()
	poll.UntilDone(t, "a leader", func() (bool, string) {
		holder = r.leader(t)
		return holder != "" && holder != other, fmt.Sprintf("it is %q", holder)
	})
	return holder
}

// TestControllersRunOnLeaderOnly runs two replicas on one etcd: only the leader's controllers
// write, and the other replica's controllers take over when it stops.
func TestControllersRunOnLeaderOnly(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil).Endpoint()
	first := startReplica(t, endpoint)
	leader := first.waitForLeader(t, "")
	second := startReplica(t, endpoint)

	// The leader hosts it, even if it is created on the other replica.
	widgets := second.installCRD(t, newCRD(t, anySchema))
	widgets.waitForHostedResource(t, "is hosted", isHosted)
	if got := first.leader(t); got != leader {
		t.Errorf("%s leads, it was %s", got, leader)
	}
	if got := second.writes(t); len(got) > 0 {
		t.Errorf("the controllers of the replica that does not lead wrote %d times", len(got))
	}

	first.Stop(t)
	if got := second.leader(t); got == leader {
		t.Errorf("%s stopped and did not release the Lease", leader)
	}
	second.waitForLeader(t, leader)
	widgets.create(t, "v1", "w", "{}")
	widgets.waitForHostedResource(t, "has an object", func(hosted *hostingv1alpha1.HostedResource) bool { return hosted.Status.Objects == 1 })
	before := first.writes(t)
	if len(before) == 0 {
		t.Fatal("the first replica logged no write")
	}
	var after []time.Time
	// A write is logged after its answer.
	poll.UntilDone(t, "writes of the second replica", func() (bool, string) {
		after = second.writes(t)
		return len(after) > 0, "none in its audit log"
	})
	if last, next := before[len(before)-1], after[0]; !last.Before(next) {
		t.Errorf("the first replica wrote at %s, the second at %s already", last, next)
	}
}

// TestReadyAfterWarmUp reads resources from a replica that has just become ready. Upstream
// returns 429 for the first requests of a resource.
func TestReadyAfterWarmUp(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil).Endpoint()
	first := startReplica(t, endpoint)
	var resources []*resource
	for range 2 {
		widgets := first.installCRD(t, newCRD(t, anySchema))
		widgets.create(t, "v1", "w", "{}")
		resources = append(resources, widgets)
	}
	second := startReplica(t, endpoint)
	for _, widgets := range resources {
		for _, query := range []string{"", "?resourceVersion=0", "?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
			second.get(t, widgets.path("v1")+query).Expect(t, http.StatusOK, "%s%s", widgets.name, query)
		}
	}
}

// TestEstablishedOnEveryReplica creates a CRD on one replica while the other receives events
// of etcd late: a client that has seen Established must not get 404 from it.
func TestEstablishedOnEveryReplica(t *testing.T) {
	// Not parallel: annex gives other replicas five seconds, which a busy machine may need for itself.
	etcd := etcdtest.Start(t, nil)
	slow, err := faultproxy.New(t.Context(), strings.TrimPrefix(etcd.Endpoint(), "unix://"))
	expect.NoError(t, err)
	t.Cleanup(slow.Close)

	first, second := startReplica(t, etcd.Endpoint()), startReplica(t, "http://"+slow.Address())
	slow.SetDelay(500 * time.Millisecond)
	widgets := first.installCRD(t, newCRD(t, anySchema))
	if got := second.get(t, widgets.path("v1")); got.Code != http.StatusOK {
		t.Errorf("the other replica, half a second behind, answers %s", got)
	}
	slow.SetDelay(0) // for a fast stop
}

// With the embedded etcd there is no other replica, and no Lease.
func TestNoLeaderElectionWithEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.waitForHostedResource(t, "is hosted", isHosted)
	lease, err := a.Kube.CoordinationV1().Leases("annex-system").Get(t.Context(), "annex-controllers", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("error %v, lease %v", err, lease)
	}
}
