// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annextest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/process"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// Annex is a running replica.
type Annex struct {
	*Installation
	// URL is its own endpoint, and Kubeconfig the path of its administrator's kubeconfig, which
	// is valid without the main cluster.
	URL, Kubeconfig string
	// AnnexConfig is Kubeconfig, without a limit on requests.
	AnnexConfig *restclient.Config
	// DataDir holds its data; launch another replica on it after Shutdown.
	DataDir string
	// Process is set if it runs as a separate process.
	Process *process.Annex

	server  *testserver.Server
	address string
}

// Start installs annex in a main cluster, runs it in the test process on a new data directory,
// waits until the main cluster proxies hosting.annex.dev to it, and stops and uninstalls it
// when the test ends. flags are flags of `annex serve`.
func Start(t testing.TB, cluster *maincluster.Cluster, flags ...string) *Annex {
	t.Helper()
	return start(t, cluster, func(i *Installation) (*Annex, error) { return i.Launch(t.TempDir(), flags...) })
}

// StartProcess is Start with bin/annex as a separate process.
func StartProcess(t testing.TB, cluster *maincluster.Cluster, flags ...string) *Annex {
	t.Helper()
	return start(t, cluster, func(i *Installation) (*Annex, error) { return i.LaunchProcess(t.Context(), t.TempDir(), flags...) })
}

func start(t testing.TB, cluster *maincluster.Cluster, launch func(*Installation) (*Annex, error)) *Annex {
	t.Helper()
	i := InstallForTest(t, cluster)
	annex, err := launch(i)
	expect.NoError(t, err, "annex did not start")
	t.Cleanup(func() {
		annex.Stop(t)
		expect.Succeeds(t, i.Uninstall(context.Background()))
	})
	expect.NoError(t, i.WaitHosting(t.Context()))
	return annex
}

// InstallForTest is Install with a balancer that is closed when the test ends.
func InstallForTest(t testing.TB, cluster *maincluster.Cluster) *Installation {
	t.Helper()
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	expect.NoError(t, err)
	t.Cleanup(func() {
		expect.Succeeds(t, balancer.Close())
	})
	i, err := Install(t.Context(), cluster, balancer)
	expect.NoError(t, err)
	return i
}

// Launch runs a replica in this process, waits until it is ready, and adds it to the endpoints
// of the Service. Call Shutdown.
func (i *Installation) Launch(dataDir string, flags ...string) (*Annex, error) {
	server, err := testserver.Launch(dataDir, append(i.Flags(), flags...)...)
	if err != nil {
		return nil, err
	}
	annex := &Annex{
		Installation: i, DataDir: dataDir, server: server,
		URL: server.URL, Kubeconfig: server.Kubeconfig, AnnexConfig: server.AnnexConfig,
	}
	return annex.join()
}

// LaunchProcess is Launch with bin/annex as a separate process.
func (i *Installation) LaunchProcess(ctx context.Context, dataDir string, flags ...string) (*Annex, error) {
	binary, err := process.Bin(ctx, "annex")
	if err != nil {
		return nil, err
	}
	started, err := process.Start(binary, dataDir, append(i.Flags(), flags...)...)
	if err != nil {
		return nil, err
	}
	annex := &Annex{Installation: i, DataDir: dataDir, Process: started}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := started.WaitReady(ctx); err != nil {
		started.Kill()
		return nil, err
	}
	annex.URL, annex.Kubeconfig = started.URL, started.Kubeconfig
	if annex.AnnexConfig, err = started.Config(); err != nil {
		started.Kill()
		return nil, err
	}
	return annex.join()
}

// join makes the replica an endpoint of the Service.
func (a *Annex) join() (*Annex, error) {
	parsed, err := url.Parse(a.URL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("parse annex's URL: %w", err), a.Shutdown())
	}
	a.address = parsed.Host
	a.Balancer.Add(a.address)
	return a, nil
}

// ConfigAs returns a login's configuration for annex's own endpoint.
func (a *Annex) ConfigAs(login *restclient.Config) *restclient.Config {
	config := restclient.CopyConfig(login)
	config.Host = a.AnnexConfig.Host
	config.CAFile, config.CAData = a.AnnexConfig.CAFile, a.AnnexConfig.CAData
	config.ServerName = a.AnnexConfig.ServerName
	return config
}

// Address is its endpoint in the balancer.
func (a *Annex) Address() string { return a.address }

// Shutdown removes the replica from the Service, as for a deleted pod, stops it as SIGTERM does
// and waits for its end. More calls do nothing.
func (a *Annex) Shutdown() error {
	a.Balancer.Remove(a.address)
	if a.server != nil {
		return a.server.Shutdown()
	}
	select {
	case <-a.Process.Exited():
		return nil
	default:
	}
	return a.Process.Stop(timeout)
}

// Stop is Shutdown for a test, which fails on an error.
func (a *Annex) Stop(t testing.TB) {
	t.Helper()
	expect.Succeeds(t, a.Shutdown())
	if t.Failed() && a.Process != nil {
		t.Logf("stderr of annex:\n%s", a.Process.Stderr())
	}
}

// AllowSecret lets annex read a Secret of its namespace until the test ends.
func AllowSecret(t testing.TB, main kubernetes.Interface, name string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-" + name, Namespace: Namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}}},
	}
	expect.Create(t, main.RbacV1().Roles(Namespace), role)
	expect.Create(t, main.RbacV1().RoleBindings(Namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: ServiceAccount, Namespace: Namespace}},
	})
	t.Cleanup(func() {
		ctx := context.Background()
		expect.Succeeds(t, main.RbacV1().RoleBindings(Namespace).Delete(ctx, role.Name, metav1.DeleteOptions{}))
		expect.Succeeds(t, main.RbacV1().Roles(Namespace).Delete(ctx, role.Name, metav1.DeleteOptions{}))
	})
}
