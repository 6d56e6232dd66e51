// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

const namespace = annextest.Namespace

// fewControllers aggregate the ClusterRole that has annex's permissions on groups, and create service
// accounts.
var fewControllers = maincluster.Options{
	Controllers: []string{maincluster.ClusterRoleAggregationController, maincluster.ServiceAccountController},
}

// mainCluster is shared by the tests of TestSharedCluster.
var mainCluster *maincluster.Cluster

// TestSharedCluster runs tests that install annex in the shared cluster one after another, beside those that have a
// cluster of their own.
func TestSharedCluster(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		test func(*testing.T)
	}{
		{"definitions", testDefinitions},
		{"changed while annex is down", testChangedWhileAnnexIsDown},
		{"deleted while annex is down", testDeletedWhileAnnexIsDown},
		{"finalizer not allowed", testFinalizerNotAllowed},
		{"static", testStatic},
		{"scheduled", testScheduled},
		{"doctor", testDoctor},
		{"injection", testInjection},
		{"rights", testRights},
	} {
		t.Run(tt.name, tt.test)
	}
}

func TestMain(m *testing.M) {
	// Commands print others that call annex or kubectl's plugin, which are links to the test binary.
	if name := filepath.Base(os.Args[0]); name == "annex" || name == "kubectl-annex" {
		os.Exit(cmd.Execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(maincluster.RunTests(m, fewControllers, func(started *maincluster.Cluster) { mainCluster = started }))
}

func kube(t testing.TB, config *restclient.Config) kubernetes.Interface {
	t.Helper()
	return clients.For(t, config).Kube
}

// startAnnex is annextest.Start in the shared cluster, with deleteDefinitions.
func startAnnex(t *testing.T, flags ...string) *annextest.Annex {
	t.Helper()
	deleteDefinitions(t)
	return annextest.Start(t, mainCluster, flags...)
}

// deleteDefinitions deletes the definitions of the shared cluster when annex is uninstalled: the
// next annex has no data of those that are labelled, and reports them as faults. It comes before
// the start of annex.
func deleteDefinitions(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		expect.Succeeds(t, annextest.DeleteDefinitions(context.Background(), mainCluster))
	})
}

// finding is one finding of the doctor.
type finding struct {
	Check, Status, Message, Fix string
}

// report is the output of the doctor.
type report struct {
	code     int
	findings []finding
	raw      string
}

// find returns the first finding of a check with a status and all words.
func (r report) find(check, status string, words ...string) (finding, bool) {
	for _, f := range r.findings {
		if f.Check == check && f.Status == status && expect.Missing(f.Message, words...) == "" {
			return f, true
		}
	}
	return finding{}, false
}

// doctor runs `annex doctor` on a main cluster.
func doctor(t *testing.T, cluster *maincluster.Cluster, flags ...string) report {
	t.Helper()
	var out, errOut bytes.Buffer
	code := cmd.Execute(append([]string{"doctor", "-o=json", "--kubeconfig=" + cluster.Kubeconfig}, flags...), &out, &errOut)
	r := report{code: code, raw: out.String() + errOut.String()}
	var parsed struct{ Findings []finding }
	if err := json.Unmarshal(out.Bytes(), &parsed); err != nil {
		t.Fatalf("the doctor does not print JSON: %v\n%s", err, r.raw)
	}
	r.findings = parsed.Findings
	return r
}

// waitForFinding waits until the doctor reports a finding, which may take the main cluster a
// while.
func waitForFinding(t *testing.T, cluster *maincluster.Cluster, check, status string, words ...string) finding {
	t.Helper()
	var found finding
	poll.UntilDone(t, "the doctor reports "+status+" "+check+": "+strings.Join(words, " … "), func() (bool, string) {
		r := doctor(t, cluster)
		var ok bool
		found, ok = r.find(check, status, words...)
		return ok, r.raw
	})
	return found
}

// waitForOK waits until the doctor finds no fault. An old main cluster lacks policies, which is none.
func waitForOK(t *testing.T, cluster *maincluster.Cluster) report {
	t.Helper()
	served := annextest.HasMutatingPolicies(t, cluster)
	isFault := func(f finding) bool {
		return f.Status != "ok" && (served || f.Check != "policies" || expect.Missing(f.Message, "does not serve MutatingAdmissionPolicy") != "")
	}
	var r report
	poll.UntilDone(t, "the doctor finds no fault", func() (bool, string) {
		r = doctor(t, cluster)
		return r.code == 0 && !slices.ContainsFunc(r.findings, isFault), r.raw
	})
	return r
}

// fix runs a command of the doctor in a shell.
func fix(t *testing.T, cluster *maincluster.Cluster, command string) {
	t.Helper()
	if output, err := shell(t, cluster, command); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
}

func shell(t *testing.T, cluster *maincluster.Cluster, command string) (string, error) {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	kubectl, err := process.Bin(t.Context(), "kubectl")
	expect.NoError(t, err)
	self, err := os.Executable()
	expect.NoError(t, err)
	programs := t.TempDir()
	for name, target := range map[string]string{"kubectl": kubectl, "annex": self, "kubectl-annex": self} {
		expect.NoError(t, os.Symlink(target, filepath.Join(programs, name)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	run := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	run.Dir = root
	run.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+cluster.Kubeconfig, "HOME="+programs)
	output, err := run.CombinedOutput()
	return string(output), err
}

// ownCluster starts a main cluster for a test that breaks it.
func ownCluster(t *testing.T) *maincluster.Cluster {
	t.Helper()
	return maincluster.StartForTest(t, fewControllers)
}
