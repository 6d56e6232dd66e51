// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestKustomize applies the manifests to a real main cluster twice, as documented, and then the overlay for an external
// etcd. It checks their pods against the strictest pod security profile.
func TestKustomize(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	fix(t, cluster, "kubectl apply -k artifacts/deploy/base")
	for _, line := range apply(t, cluster.Kubeconfig, "kubectl apply -k artifacts/deploy/base") {
		// kubectl cannot compare lists that are replaced as a whole.
		if strings.Contains(line, "rbac") && !strings.HasSuffix(line, "unchanged") {
			t.Errorf("applied again, permissions change: %s", line)
		}
	}
	apps := kube(t, cluster.Config).AppsV1()
	tryPod(t, cluster.Config, expect.Get(t, apps.StatefulSets(namespace), "annex").Spec.Template)
	expect.Delete(t, apps.StatefulSets(namespace), "annex")
	checkExternalEtcd(t, cluster)
	fix(t, cluster, "kubectl delete -k artifacts/deploy/base --ignore-not-found --wait=false")
}

// checkExternalEtcd applies the overlay, which has three replicas and no StatefulSet.
func checkExternalEtcd(t *testing.T, cluster *maincluster.Cluster) {
	t.Helper()
	fix(t, cluster, "kubectl apply -k artifacts/deploy/overlays/external-etcd")
	deployment := expect.Get(t, kube(t, cluster.Config).AppsV1().Deployments(namespace), "annex")
	if *deployment.Spec.Replicas != 3 {
		t.Errorf("%d replicas, want 3", *deployment.Spec.Replicas)
	}
	tryPod(t, cluster.Config, deployment.Spec.Template)
	if _, err := kube(t, cluster.Config).AppsV1().StatefulSets(namespace).Get(t.Context(), "annex", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the overlay has a StatefulSet: %v", err)
	}

	// The doctor reports what is missing before annex runs.
	r := doctor(t, cluster)
	for check, status := range map[string]string{"service": "ok", "rbac": "ok", "front-proxy": "ok", "endpoints": "FAIL", "leader": "FAIL", "apiservice": "FAIL"} {
		if _, ok := r.find(check, status); !ok {
			t.Errorf("before annex runs, %s is not %s:\n%s", check, status, r.raw)
		}
	}
	if r.code != 1 {
		t.Errorf("the doctor exits with %d, want 1", r.code)
	}

	definePrometheusOperator(t, cluster)
	for _, component := range []string{"servicemonitor", "prometheusrule"} {
		fix(t, cluster, "kubectl kustomize artifacts/deploy/components/"+component+" | kubectl apply --dry-run=server -f -")
	}
}

// definePrometheusOperator creates the CRDs of the Prometheus operator that the manifests need.
func definePrometheusOperator(t *testing.T, cluster *maincluster.Cluster) {
	t.Helper()
	manifests, err := crds.LoadNamed(t.Context(), "prometheus-operator")
	expect.NoError(t, err)
	for _, manifest := range manifests {
		name := manifest.CRD.Name
		if name != "servicemonitors.monitoring.coreos.com" && name != "prometheusrules.monitoring.coreos.com" {
			continue
		}
		expect.Create(t, definitions(t, cluster.Config), manifest.CRD)
		poll.UntilDone(t, name+" is served", func() (bool, string) {
			output, err := shell(t, cluster, "kubectl get "+name)
			return err == nil, output
		})
	}
}

// TestChart checks that a real main cluster accepts all that the chart renders, and that helm takes over what kustomize
// installed, tests, upgrades and removes it.
func TestChart(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	apply(t, cluster.Kubeconfig, "helm lint --strict artifacts/chart")
	fix(t, cluster, "kubectl create namespace elsewhere && kubectl -n elsewhere create serviceaccount annex-test")
	fix(t, cluster, "kubectl apply -k artifacts/deploy/base")
	definePrometheusOperator(t, cluster)
	for name, variant := range variants {
		rendered := output(t, cluster.Kubeconfig, "helm template annex artifacts/chart -n elsewhere --set="+variant.set)
		if strings.Contains(rendered, "annex-system") {
			t.Errorf("%s: in another namespace the chart renders annex-system:\n%s", name, rendered)
		}
		dryRun := exec.CommandContext(t.Context(), program(t, "kubectl"), "apply", "--kubeconfig="+cluster.Kubeconfig, "--dry-run=server", "-f", "-")
		dryRun.Stdin = strings.NewReader(rendered)
		if output, err := dryRun.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
		if variant.folder == "" {
			continue
		}
		chart := objects(t, output(t, cluster.Kubeconfig, "helm template annex artifacts/chart -n annex-system --no-hooks --set="+variant.set))
		kustomized := objects(t, output(t, cluster.Kubeconfig, "kubectl kustomize "+variant.folder))
		// Helm creates the namespace, and labels what it installs.
		delete(kustomized, "Namespace /annex-system")
		for _, object := range chart {
			removeReleaseLabels(object)
		}
		if diff := cmp.Diff(kustomized, chart); diff != "" {
			t.Errorf("%s: the chart differs (-kustomize +chart):\n%s", name, diff)
		}
	}

	apply(t, cluster.Kubeconfig, "helm install annex artifacts/chart -n annex-system --take-ownership --force-conflicts")
	if r := doctor(t, cluster); r.findings == nil {
		t.Error("the doctor reports nothing")
	} else if _, ok := r.find("rbac", "ok"); !ok {
		t.Errorf("the chart does not grant annex its permissions:\n%s", r.raw)
	}
	apply(t, cluster.Kubeconfig, "helm upgrade annex artifacts/chart -n annex-system --set resources.limits.memory=2Gi --force-conflicts")
	runHooks(t, cluster)
	if _, _, err := runProgram(t, cluster.Kubeconfig, "helm test annex -n annex-system"); err == nil {
		t.Error("helm test succeeds although annex does not run")
	}
	apply(t, cluster.Kubeconfig, "helm uninstall annex -n annex-system")
}

// TestChartRefuses installs the chart with values that are wrong, and beside another annex.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	fix(t, cluster, "kubectl create namespace elsewhere")
	refused := func(set, want string) {
		t.Helper()
		_, stderr, err := runProgram(t, cluster.Kubeconfig, "helm install annex artifacts/chart -n elsewhere --dry-run=server --set="+set)
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%q: %v, want %q:\n%s", set, err, want, stderr)
		}
	}
	for set, want := range map[string]string{
		"replica=3":                    "'replica' not allowed",
		"replicas=3":                   "needs etcd.servers",
		"resources.limits.memory=lots": "/resources/limits/memory",
		"image.digest=latest":          "/image/digest",
		"etcd.servers={http://a:2379}": "in plain text",
		"etcd.servers={a:2379}":        "/etcd/servers/0",
		"injector.enabled=true":        "injector.apiServerCIDR is needed",
		"securePort=0":                 "/securePort",
		"etcd.insecure=true,etcd.servers={http://a:2379,https://b:2379}": "mixes",
	} {
		refused(set, want)
	}
	fix(t, cluster, `kubectl create -f - <<E
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1alpha1.hosting.annex.dev}, spec: {group: hosting.annex.dev, version: v1alpha1,
groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true, service: {name: annex, namespace: first}}}
E`)
	refused("", "annex runs in namespace first already")
}

// removeReleaseLabels removes the labels of a release from an object and from its Pods.
func removeReleaseLabels(object map[string]any) {
	if labels, ok := object["labels"].(map[string]any); ok {
		delete(labels, "app.kubernetes.io/instance")
		delete(labels, "app.kubernetes.io/managed-by")
	}
	for _, value := range object {
		switch value := value.(type) {
		case map[string]any:
			removeReleaseLabels(value)
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					removeReleaseLabels(item)
				}
			}
		}
	}
}

// program returns the path of a program in bin/.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := process.Bin(t.Context(), name)
	expect.NoError(t, err, "make %s", name)
	return path
}

// output runs kubectl or helm of this repository. Arguments must not contain spaces.
func output(t *testing.T, kubeconfig, command string) string {
	t.Helper()
	printed, stderr, err := runProgram(t, kubeconfig, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, printed, stderr)
	}
	return printed
}

func runProgram(t *testing.T, kubeconfig, command string) (stdout, stderr string, err error) {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	words := strings.Fields(command)
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	run := exec.CommandContext(ctx, program(t, words[0]), words[1:]...)
	run.Dir = root
	home := t.TempDir()
	run.Env = append(run.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+home, "HELM_CACHE_HOME="+filepath.Join(home, "helm"))
	var out, errs bytes.Buffer
	run.Stdout, run.Stderr = &out, &errs
	err = run.Run()
	return out.String(), errs.String(), err
}

func apply(t *testing.T, kubeconfig, command string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(output(t, kubeconfig, command)), "\n")
}

// objects parses manifests, by kind, namespace and name.
func objects(t *testing.T, manifests string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, manifests)
		}
		if len(object.Object) > 0 {
			all[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.Object
		}
	}
}

// tryPod creates a pod with dry run in annex's namespace, where the main cluster enforces the
// profile "restricted".
func tryPod(t *testing.T, config *restclient.Config, template corev1.PodTemplateSpec) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try", Labels: template.Labels}, Spec: template.Spec}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "data" }) {
		// A StatefulSet adds the volume of its claim.
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-annex-0"},
		}})
	}
	pods := kube(t, config).CoreV1().Pods(namespace)
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, err := pods.Create(t.Context(), pod, options); err != nil {
		t.Errorf("a pod of annex: %v", err)
	}
	// The profile is really enforced.
	privileged := pod.DeepCopy()
	privileged.Spec.HostNetwork = true
	if _, err := pods.Create(t.Context(), privileged, options); !apierrors.IsForbidden(err) {
		t.Errorf("a pod with host network was accepted: %v", err)
	}
}
