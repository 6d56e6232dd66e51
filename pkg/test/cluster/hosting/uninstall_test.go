// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/docs"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// uninstallTimeout bounds a command that rolls groups back.
const uninstallTimeout = 6 * time.Minute

// installation is a main cluster of its own, in which Helm has installed annex.
type installation struct {
	*testing.T
	cluster *maincluster.Cluster
	main    *clients.Clients
	annex   *annextest.Annex
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	cluster := maincluster.StartForTest(t, maincluster.Options{})
	apply(t, cluster.Kubeconfig, "helm install annex artifacts/chart -n annex-system --create-namespace")
	i := &installation{T: t, cluster: cluster, main: clients.For(t, cluster.Config)}
	runHooks(t, cluster)
	// annex runs outside of the cluster, and so behind another type of Service.
	services := i.main.Kube.CoreV1().Services(namespace)
	of := expect.Get(t, services, annextest.ServiceName)
	expect.Delete(t, services, annextest.ServiceName)
	expect.Create(t, services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: of.Name, Labels: of.Labels, Annotations: of.Annotations},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	i.annex = annextest.Start(t, cluster)
	apply(t, cluster.Kubeconfig, "helm test annex -n annex-system")
	i.stopWithStatefulSet()
	return i
}

// runHooks runs the Job and the Pod of the chart's hooks in place of a kubelet, with the rights of their service accounts.
func runHooks(t *testing.T, cluster *maincluster.Cluster) {
	t.Helper()
	inBackground(t, func(ctx context.Context) (bool, error) {
		kube := clients.For(t, cluster.Config).Kube
		if err := runJob(ctx, t, cluster, kube.BatchV1().Jobs(namespace)); err != nil {
			return false, err
		}
		return false, runPod(ctx, t, cluster, kube.CoreV1().Pods(namespace))
	})
}

func runJob(ctx context.Context, t *testing.T, cluster *maincluster.Cluster, jobs batchclient.JobInterface) error {
	t.Helper()
	job, err := jobs.Get(ctx, "annex-uninstall-check", metav1.GetOptions{})
	if err != nil || len(job.Status.Conditions) > 0 {
		return ignoreNotFound(err)
	}
	output, err := runHook(ctx, t, cluster, &job.Spec.Template.Spec)
	now := metav1.Now()
	job.Status.StartTime, job.Status.UncountedTerminatedPods = &now, &batchv1.UncountedTerminatedPods{}
	conditions := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
	if err != nil {
		conditions = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
		job.Status.Failed = 1
	} else {
		job.Status.Succeeded, job.Status.CompletionTime = 1, &now
	}
	for _, kind := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: output})
	}
	_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
	return err
}

func runPod(ctx context.Context, t *testing.T, cluster *maincluster.Cluster, pods coreclient.PodInterface) error {
	t.Helper()
	pod, err := pods.Get(ctx, "annex-test", metav1.GetOptions{})
	if err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending {
		return ignoreNotFound(err)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := runHook(ctx, t, cluster, &pod.Spec); err != nil {
		pod.Status.Phase = corev1.PodFailed
	}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// runHook runs the container of a Pod, and returns its output.
func runHook(ctx context.Context, t *testing.T, cluster *maincluster.Cluster, pod *corev1.PodSpec) (string, error) {
	t.Helper()
	kubeconfig, err := cluster.ServiceAccountKubeconfig(ctx, namespace, pod.ServiceAccountName)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	run := exec.CommandContext(ctx, self, append(slices.Clone(pod.Containers[0].Args), "--kubeconfig="+kubeconfig)...)
	run.Args[0] = "annex"
	output, err := run.CombinedOutput()
	t.Logf("%s: %v\n%s", pod.ServiceAccountName, err, output)
	return string(output), err
}

// stopWithStatefulSet stops annex when its StatefulSet has no replicas.
func (i *installation) stopWithStatefulSet() {
	inBackground(i.T, func(ctx context.Context) (bool, error) {
		set, err := i.main.Kube.AppsV1().StatefulSets(namespace).Get(ctx, "annex", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, nil // the manifests are deleted
		case err != nil || ptr.Deref(set.Spec.Replicas, 1) > 0:
			return false, err
		}
		return true, i.annex.Shutdown()
	})
}

// inBackground polls until the test ends.
func inBackground(t *testing.T, poll func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, poll) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
}

// typed runs a line as a user types it, and returns its output.
func (i *installation) typed(line string) (string, error) {
	i.Helper()
	root, err := process.ModuleRoot(i.Context())
	expect.NoError(i, err)
	self, err := os.Executable()
	expect.NoError(i, err)
	programs := i.TempDir()
	for name, target := range map[string]string{"kubectl": program(i.T, "kubectl"), "helm": program(i.T, "helm"), "kubectl-annex": self} {
		expect.NoError(i, os.Symlink(target, filepath.Join(programs, name)))
	}
	ctx, cancel := context.WithTimeout(i.Context(), uninstallTimeout)
	defer cancel()
	run := exec.CommandContext(ctx, "bash", "-c", line)
	run.Dir = root
	run.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+i.cluster.Kubeconfig, "HOME="+programs)
	output, err := run.CombinedOutput()
	i.Logf("$ %s\n%s%v", line, output, err)
	return string(output), err
}

// succeeds types a line that succeeds.
func (i *installation) succeeds(line string, words ...string) {
	i.Helper()
	output, err := i.typed(line)
	expect.NoError(i, err, "%s", line)
	expect.Contains(i, output, words...)
}

// fails types a line that fails.
func (i *installation) fails(line string, words ...string) {
	i.Helper()
	output, err := i.typed(line)
	if err == nil {
		i.Fatalf("%s succeeds", line)
	}
	expect.Contains(i, output, words...)
}

func (i *installation) widgets(group string) dynamic.ResourceInterface {
	return i.main.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(metav1.NamespaceDefault)
}

func (i *installation) define(group string) {
	i.Helper()
	expect.Create(i, i.main.CRDs(), crds.New(group, "widgets", "v1"))
	poll.UntilNoError(i, "the main cluster serves "+group, func() error {
		_, err := i.widgets(group).List(i.Context(), metav1.ListOptions{})
		return err
	})
}

func (i *installation) create(group, name string) {
	i.Helper()
	poll.UntilNoError(i, "create "+name+" of "+group, func() error {
		_, err := i.widgets(group).Create(i.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the answer to an earlier attempt was lost
		}
		return err
	})
}

func (i *installation) delete(group, name string) {
	i.Helper()
	expect.NoError(i, i.widgets(group).Delete(i.Context(), name, metav1.DeleteOptions{}))
}

// has fails unless the main cluster itself has exactly these objects of a group, and takes writes.
func (i *installation) has(group string, names ...string) {
	i.Helper()
	var found []string
	keys, err := i.cluster.EtcdKeys(i.Context(), "/registry/"+group+"/widgets/default/")
	expect.NoError(i, err)
	for _, key := range keys {
		found = append(found, filepath.Base(key))
	}
	slices.Sort(found)
	expect.Equal(i, names, found)
	for _, name := range names {
		_, err := i.widgets(group).Get(i.Context(), name, metav1.GetOptions{})
		expect.NoError(i, err)
	}
	i.create(group, "later")
	i.delete(group, "later")
}

// linesOf returns the commands in a section of a page.
func linesOf(t *testing.T, section docs.Section) (lines []string) {
	t.Helper()
	for line := range strings.Lines(section.Text(t)) {
		if command, is := strings.CutPrefix(line, "    "); is {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	return lines
}

// TestUninstall types the page with a moved, a finalized and an empty group, which were written in
// annex.
func TestUninstall(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	const moved, finalized, empty = "moved.example.com", "finalized.example.com", "empty.example.com"
	for _, group := range []string{moved, finalized, empty} {
		i.define(group)
	}
	for _, group := range []string{moved, finalized} {
		i.create(group, "before")
		i.create(group, "deleted")
		i.succeeds("kubectl annex move " + group)
	}
	i.succeeds("kubectl annex finalize " + finalized + " --no-backup --yes-delete=" + finalized)
	i.succeeds("kubectl annex move " + empty)
	for _, group := range []string{moved, finalized, empty} {
		i.create(group, "born")
	}
	for _, group := range []string{moved, finalized} {
		i.delete(group, "deleted")
	}

	lines := linesOf(t, docs.Section{Page: "install.md", Heading: "## Uninstall"})
	expect.Equal(t, []string{
		"kubectl annex uninstall --dry-run", "kubectl annex uninstall --yes", "kubectl delete -k artifacts/deploy/base --ignore-not-found",
		"helm uninstall annex -n annex-system", "kubectl delete namespace annex-system",
	}, lines)
	i.fails(lines[3], "annex-uninstall-check")
	i.fails("kubectl annex uninstall </dev/null", "not confirmed")
	i.fails(lines[0], "GROUP ", empty, finalized+"   Finalized", moved+" ", " Moved ", "annex serves "+strings.Join([]string{empty, finalized, moved}, ", "))
	i.succeeds(lines[1], "The main cluster serves "+moved+".", "The main cluster serves "+finalized+".", "The main cluster serves "+empty+".",
		"statefulset.apps/annex scaled to 0", "apiservice.apiregistration.k8s.io/v1alpha1.hosting.annex.dev deleted", "lease.coordination.k8s.io/annex-controllers deleted",
		"secret/annex-serving-ca deleted", "  helm uninstall annex -n annex-system\n")

	i.has(moved, "before", "born")
	i.has(finalized, "before", "born")
	i.has(empty, "born")
	i.expectNothingLeft()
	i.succeeds(lines[1], "annex serves no group")
	for _, line := range []string{lines[3], lines[4], lines[2]} {
		i.succeeds(line)
	}
	if r := doctor(t, i.cluster); r.findings != nil {
		if _, ok := r.find("leftovers", "ok", "no group has anything"); !ok {
			t.Errorf("the doctor finds leftovers:\n%s", r.raw)
		}
	}
}

// expectNothingLeft fails if annex has left something besides its manifests.
func (i *installation) expectNothingLeft() {
	i.Helper()
	for _, path := range []string{
		"/registry/apiregistration.k8s.io/", "/registry/apiextensions.k8s.io/", "/registry/validatingadmissionpolic",
		"/registry/clusterroles/annex-hosted-", "/registry/roles/annex-system/", "/registry/rolebindings/annex-system/",
		"/registry/configmaps/annex-system/", "/registry/secrets/annex-system/", "/registry/leases/annex-system/",
	} {
		keys, err := i.cluster.EtcdKeys(i.Context(), path)
		expect.NoError(i, err)
		for _, key := range keys {
			name := filepath.Base(key)
			manifest := slices.Contains([]string{"annex", "annex-hosted-groups", "kube-root-ca.crt"}, name) || strings.HasPrefix(name, "sh.helm.")
			if strings.Contains(key, "annex") && !manifest {
				i.Errorf("%s is left", key)
			}
		}
	}
	definitions, err := i.main.CRDs().List(i.Context(), metav1.ListOptions{})
	expect.NoError(i, err)
	for _, of := range definitions.Items {
		if len(of.Labels) > 0 || len(of.Spec.Versions) > 1 || slices.ContainsFunc(of.Finalizers, func(name string) bool { return strings.HasPrefix(name, "annex.dev/") }) {
			i.Errorf("%s is left with labels %v, finalizers %v and %d versions", of.Name, of.Labels, of.Finalizers, len(of.Spec.Versions))
		}
	}
}

// TestLeftovers removes annex as one should not: the doctor finds that, and with its data it names
// what gives the objects back.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	const group = "left.example.com"
	i.define(group)
	i.create(group, "before")
	i.succeeds("kubectl annex move " + group)
	i.create(group, "born")

	i.succeeds("kubectl label crds -l annex.dev/hosted=true annex.dev/hosted-")
	expect.Eventually(t, i.main.CRDs(), "widgets."+group, "annex has released it", func(found *apiextensionsv1.CustomResourceDefinition) bool { return len(found.Finalizers) == 0 })
	i.annex.Stop(t)
	i.fails("kubectl annex uninstall --yes", "nothing was changed", "annex does not answer")
	i.succeeds("kubectl delete apiservices -l annex.dev/published-by")
	waitForFinding(t, i.cluster, "leftovers", "FAIL", "keeps a copy of "+group, "start annex with its volume or etcd")
	i.fails("kubectl annex uninstall --yes", "nothing was changed", group, "start it with its data")

	again, err := i.annex.Launch(i.annex.DataDir)
	expect.NoError(t, err)
	t.Cleanup(func() { again.Stop(t) })
	expect.NoError(t, again.WaitHosting(t.Context()))
	found := waitForFinding(t, i.cluster, "leftovers", "FAIL", "annex has the objects of "+group)
	i.fails("kubectl annex uninstall --yes", "nothing was changed", group, "kubectl annex doctor")
	i.succeeds(strings.ReplaceAll(found.Fix, "annex rollback", "kubectl annex rollback"), "The main cluster serves "+group)
	i.has(group, "before", "born")
	waitForFinding(t, i.cluster, "leftovers", "ok")
}
