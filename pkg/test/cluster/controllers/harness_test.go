// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// parentVariable makes the test binary start a cluster and wait to be killed.
const parentVariable = "MAINCLUSTER_TEST_PARENT"

func TestVersionAndPrivacy(t *testing.T) {
	t.Parallel()
	version, err := kube(t, mainCluster.Config).Discovery().ServerVersion()
	expect.NoError(t, err)
	if !strings.HasPrefix(version.GitVersion, "v1.") || version.Major != "1" {
		t.Errorf("the cluster has version %s, major %q", version.GitVersion, version.Major)
	}
	info, err := os.Stat(mainCluster.Dir)
	expect.NoError(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("other users may read %s: mode %v", mainCluster.Dir, info.Mode())
	}
	if mainCluster.Config.Insecure {
		t.Error("the kubeconfig does not verify the API server")
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	whoAmI := func(t *testing.T, config *restclient.Config) authenticationv1.UserInfo {
		t.Helper()
		review := expect.Create(t, kube(t, config).AuthenticationV1().SelfSubjectReviews(), &authenticationv1.SelfSubjectReview{})
		return review.Status.UserInfo
	}
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		config, err := mainCluster.ConfigFor("jane", "builders")
		expect.NoError(t, err)
		if user := whoAmI(t, config); user.Username != "jane" || user.Groups[0] != "builders" {
			t.Errorf("logged in as %+v", user)
		}
		if _, err := kube(t, config).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a user without a role lists secrets: %v", err)
		}
	})
	t.Run("service account", func(t *testing.T) {
		t.Parallel()
		path, err := mainCluster.ServiceAccountKubeconfig(t.Context(), "default", "default")
		expect.NoError(t, err)
		config, err := clientcmd.BuildConfigFromFlags("", path)
		expect.NoError(t, err)
		if user := whoAmI(t, config); user.Username != "system:serviceaccount:default:default" {
			t.Errorf("logged in as %+v", user)
		}
	})
	t.Run("anonymous", func(t *testing.T) {
		t.Parallel()
		config := restclient.AnonymousClientConfig(mainCluster.Config)
		if _, err := kube(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("an anonymous request listed namespaces: %v", err)
		}
	})
}

// TestControllers checks the controllers that aggregated servers depend on.
func TestControllers(t *testing.T) {
	t.Parallel()
	client := kube(t, mainCluster.Config)
	const namespace = "controllers"
	expect.Create(t, client.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	poll.UntilNoError(t, "root CA", func() error {
		_, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	owner := expect.Create(t, client.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	expect.Create(t, client.CoreV1().ConfigMaps(namespace), owned)
	expect.Delete(t, client.CoreV1().ConfigMaps(namespace), owner.Name)
	expect.Gone(t, client.CoreV1().ConfigMaps(namespace), owned.Name)
	expect.Delete(t, client.CoreV1().Namespaces(), namespace)
	expect.Gone(t, client.CoreV1().Namespaces(), namespace)
}

func TestRotateFrontProxyCA(t *testing.T) {
	t.Parallel()
	expect.NoError(t, mainCluster.RotateFrontProxyCA(t.Context()))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	cluster, err := maincluster.Start(t.Context(), maincluster.Options{Controllers: []string{maincluster.NoControllers}})
	expect.NoError(t, err)
	t.Cleanup(func() {
		expect.Succeeds(t, cluster.Stop())
		if _, err := os.Stat(cluster.Dir); !os.IsNotExist(err) {
			t.Errorf("%s is left behind: %v", cluster.Dir, err)
		}
	})
	client := kube(t, cluster.Config)
	expect.Create(t, client.CoreV1().ConfigMaps("default"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}})
	expect.NoError(t, cluster.StopAPIServer(t.Context()))
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Fatal("the stopped API server still responds")
	}
	expect.NoError(t, cluster.StartAPIServer(t.Context()))
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := cluster.StartAPIServer(t.Context()); err == nil {
		t.Error("a second API server was started")
	}
}

func TestFailureShowsTheLog(t *testing.T) {
	t.Parallel()
	_, err := maincluster.Start(t.Context(), maincluster.Options{APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("the error lacks the log of kube-apiserver: %v", err)
	}
}

// TestChildrenDieWithTheParent kills a process that runs a cluster.
func TestChildrenDieWithTheParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a process that was killed")
	}
	dir, err := os.MkdirTemp("", "main-cluster-orphans-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	programs, err := maincluster.FindPrograms(t.Context())
	expect.NoError(t, err)
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	parent.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+dir,
		// So that it starts no other children to find them.
		maincluster.ProgramsVariable+"="+filepath.Dir(programs.KubeAPIServer))
	expect.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	var children []string
	poll.UntilNoError(t, "start of the children", func() error {
		if children = childrenOf(parent.Process.Pid); len(children) == 0 {
			return fmt.Errorf("process %d has none", parent.Process.Pid)
		}
		return nil
	})
	_ = parent.Process.Kill()
	_ = parent.Wait()
	poll.UntilNoError(t, "end of the children", func() error {
		for _, pid := range children {
			if command, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline")); err == nil && len(command) > 0 {
				return fmt.Errorf("process %s still runs: %s", pid, command)
			}
		}
		return nil
	})
}

// childrenOf reads the children of a process from /proc.
func childrenOf(pid int) []string {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var children []string
	for _, list := range lists {
		if content, err := os.ReadFile(list); err == nil {
			children = append(children, strings.Fields(string(content))...)
		}
	}
	return children
}

// TestAnnex: the main cluster proxies to this annex, and another one can replace it.
func TestAnnex(t *testing.T) {
	t.Parallel()
	var earlier string
	for range 2 {
		annex := annextest.Start(t, mainCluster)
		through := expect.Get(t, clients.For(t, mainCluster.Config).Stores(), "default")
		direct := expect.Get(t, clients.For(t, annex.AnnexConfig).Stores(), "default")
		if through.UID != direct.UID || string(through.UID) == earlier {
			t.Errorf("through the main cluster the Store has UID %s, in annex %s, in the previous annex %q", through.UID, direct.UID, earlier)
		}
		earlier = string(direct.UID)
		expect.NoError(t, errors.Join(annex.Shutdown(), annex.Uninstall(t.Context())))
	}
}
