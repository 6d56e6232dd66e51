// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestMainClusterUnavailable breaks a main cluster in several ways, one after the other.
func TestMainClusterUnavailable(t *testing.T) {
	t.Parallel()
	cluster := maincluster.StartForTest(t, noControllers)
	t.Run("missing RoleBinding", func(t *testing.T) { testMissingRoleBinding(t, cluster) })
	t.Run("down at the start", func(t *testing.T) { testMainClusterIsDownAtStart(t, cluster) })
	t.Run("goes down", func(t *testing.T) { testMainClusterGoesDown(t, cluster) })
}

// testMainClusterGoesDown: annex stays ready and its administrator can log in; others get an
// immediate 503 with the reason.
func testMainClusterGoesDown(t *testing.T, cluster *maincluster.Cluster) {
	annex := annextest.Start(t, cluster, "--authorization-webhook-cache-authorized-ttl=0s", "--authentication-token-webhook-cache-ttl=0s")
	token := annex.ConfigAs(serviceAccount(t, cluster, "robot"))
	certificate, err := cluster.ConfigFor("alice")
	expect.NoError(t, err)
	certificate = annex.ConfigAs(certificate)
	masters, err := cluster.ConfigFor("root", "system:masters")
	expect.NoError(t, err)
	masters = annex.ConfigAs(masters)
	allow(t, cluster, "stores-reader",
		rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "robot"})
	for name, config := range map[string]*restclient.Config{"token": token, "certificate": certificate} {
		poll.UntilDone(t, name+" is accepted", func() (bool, string) {
			got, body := get(t, config, stores)
			return got == http.StatusOK, body
		})
	}

	cluster.KillAPIServer()
	for name, config := range map[string]*restclient.Config{"token": token, "certificate": certificate} {
		started := time.Now()
		got, body := get(t, config, stores)
		if got != http.StatusServiceUnavailable || !strings.Contains(body, "the main cluster") {
			t.Errorf("%s, with the main cluster down: %d, want a 503 that names it: %s", name, got, body)
		}
		if strings.Contains(body, strings.TrimPrefix(cluster.Config.Host, "https://")) || strings.Contains(body, "refused") {
			t.Errorf("the response to %s discloses the main cluster's address: %s", name, body)
		}
		t.Logf("%s was refused after %s", name, time.Since(started).Round(time.Millisecond))
	}
	for name, config := range map[string]*restclient.Config{"annex's administrator": annex.AnnexConfig, "system:masters of the main cluster": masters} {
		if got, body := get(t, config, stores); got != http.StatusOK {
			t.Errorf("%s, with the main cluster down: %d, want 200: %s", name, got, body)
		}
	}
	if got, body := get(t, annex.AnnexConfig, "/readyz"); got != http.StatusOK {
		t.Errorf("annex is not ready with the main cluster down: %d: %s", got, body)
	}

	expect.NoError(t, cluster.StartAPIServer(t.Context()))
	for name, config := range map[string]*restclient.Config{"token": token, "certificate": certificate} {
		poll.UntilDone(t, name+" is accepted again", func() (bool, string) {
			got, body := get(t, config, stores)
			return got == http.StatusOK, body
		})
	}
}

// testMainClusterIsDownAtStart: annex logs that it waits for the main cluster, can be stopped,
// and becomes ready once the main cluster is.
func testMainClusterIsDownAtStart(t *testing.T, cluster *maincluster.Cluster) {
	installation := annextest.InstallForTest(t, cluster)
	cluster.KillAPIServer()

	stopped := launch(t, installation)
	waitForLog(t, stopped, "connection refused")
	expect.NoError(t, stopped.Signal(os.Interrupt))
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	if code, err := stopped.Wait(ctx); err != nil || code != 0 {
		t.Errorf("stopped while it waited: code %d, %v", code, err)
	}

	started := launch(t, installation)
	waitForLog(t, started, "connection refused")
	expect.NoError(t, cluster.StartAPIServer(t.Context()))
	expect.Succeeds(t, started.WaitReady(ctx))
}

// testMissingRoleBinding: annex logs which manifest is missing, and starts once it is applied.
func testMissingRoleBinding(t *testing.T, cluster *maincluster.Cluster) {
	installation := annextest.InstallForTest(t, cluster)
	bindings := kube(t, cluster.Config).RbacV1().RoleBindings(metav1.NamespaceSystem)
	binding := expect.Get(t, bindings, "annex-authentication-reader")
	expect.Delete(t, bindings, binding.Name)

	annex := launch(t, installation)
	waitForLog(t, annex, "rbac.yaml")
	binding.ResourceVersion, binding.UID = "", ""
	expect.Create(t, bindings, binding)
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	expect.Succeeds(t, annex.WaitReady(ctx))
}

// launch starts annex as a process and does not wait for it.
func launch(t *testing.T, installation *annextest.Installation) *process.Annex {
	t.Helper()
	binary, err := process.Bin(t.Context(), "annex")
	expect.NoError(t, err)
	annex, err := process.Start(binary, t.TempDir(), installation.Flags()...)
	expect.NoError(t, err)
	t.Cleanup(annex.Kill)
	return annex
}

// waitForLog waits until annex logs that it waits for the main cluster, and why.
func waitForLog(t *testing.T, annex *process.Annex, reason string) {
	t.Helper()
	poll.UntilDone(t, "annex logs what it waits for", func() (bool, string) {
		log := annex.Stderr()
		return strings.Contains(log, "Waiting for the main cluster") && strings.Contains(log, reason), log
	})
}

// TestNoUnauthorizedDuringStart sends requests through the main cluster while annex starts: they
// may fail, but not because of the login.
func TestNoUnauthorizedDuringStart(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	_, port, err := net.SplitHostPort(annex.Address())
	expect.NoError(t, err)
	mainStores := kube(t, mainCluster.Config).CoreV1().RESTClient()
	request := func(ctx context.Context) error {
		return mainStores.Get().AbsPath("/apis/hosting.annex.dev/v1alpha1/stores").MaxRetries(0).Do(ctx).Error()
	}
	for range 3 {
		expect.NoError(t, annex.Shutdown())
		// annex uses the same port again, and receives connections before it is ready.
		annex.Balancer.Add(annex.Address())
		ctx, stop := context.WithCancel(t.Context())
		responses := make(chan map[string]int)
		go func() {
			counts := map[string]int{}
			for ctx.Err() == nil {
				if err := request(ctx); ctx.Err() == nil {
					counts[string(apierrors.ReasonForError(err))]++
				}
			}
			responses <- counts
		}()
		if annex, err = annex.Launch(annex.DataDir, "--secure-port="+port); err != nil {
			stop()
			t.Fatal(err)
		}
		stopLater := annex
		t.Cleanup(func() { stopLater.Stop(t) })
		poll.UntilDone(t, "a response after the start", func() (bool, string) {
			err := request(t.Context())
			return err == nil, string(apierrors.ReasonForError(err))
		})
		stop()
		if counts := <-responses; counts["Unauthorized"] > 0 || counts["Forbidden"] > 0 {
			t.Errorf("responses while annex started: %v", counts)
		}
	}
}
