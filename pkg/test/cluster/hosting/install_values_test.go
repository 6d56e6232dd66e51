// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/docs"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// variants has values of the chart by name, with the folder of kustomize that renders the same objects, if there is one.
var variants = map[string]struct{ set, folder string }{
	"embedded etcd": {"", "artifacts/deploy/base"},
	"external etcd": {"etcd.servers={https://etcd.example.com:2379}", "artifacts/deploy/overlays/external-etcd"},
	"volume":        {"persistence.storageClassName=fast,persistence.size=1Gi," + files, ""},
	"network":       {"hostNetwork=true,securePort=10250,bindAddress=::,networkPolicy.from[0].ipBlock.cidr=10.0.0.0/8", ""},
	"no policies":   {"networkPolicy.enabled=false,podDisruptionBudget.enabled=false,image.pullPolicy=Never,resources.requests.cpu=1,resources.limits.memory=2Gi", ""},
	"image":         {"image.repository=registry.example.com/annex,image.tag=v1,image.digest=sha256:" + strings.Repeat("ab", 32) + ",imagePullSecrets[0].name=registry,image.pullPolicy=Always", ""},
	"metadata": {"commonLabels.team=platform,podLabels.mesh=no,podAnnotations.a=b,serviceAccount.annotations.role=arn," +
		"env[0].name=GODEBUG,env[0].value=netdns=go,extraArgs={--v=2},global.region=a", ""},
	"scheduling":   {"etcd.servers={https://a:2379,https://b:2379},etcd.secretName=tls," + nodes + "," + files, ""},
	"spread":       {"etcd.servers={https://a:2379},replicas=5,podDisruptionBudget.maxUnavailable=30%,topologySpreadConstraints=null,env[0].name=A,env[0].value=b", ""},
	"etcd, no TLS": {"etcd.servers={http://a:2379},etcd.insecure=true", ""},
	"monitoring": {"serviceMonitor.enabled=true,serviceMonitor.interval=30s,serviceMonitor.scrapeTimeout=10s,serviceMonitor.labels.release=p," +
		"prometheusRule.enabled=true,prometheusRule.labels.release=p,dashboards.enabled=true,dashboards.labels.release=p", ""},
	"injector": {"injector.enabled=true,injector.apiServerCIDR=10.0.0.0/8,injector.tlsSecretName=tls,injector.clientCAConfigMapName=ca," +
		"injector.resources.requests.cpu=1,injector.resources.limits.cpu=2,podLabels.mesh=no,podAnnotations.a=b," + nodes, ""},
	"webhook":       {"injector.enabled=true,injector.apiServerCIDR=10.0.0.0/8,injector.replicas=1,injector.webhook.caBundle=YQ==," + webhookRules, ""},
	"all, one etcd": {"etcd.servers={http://a:2379},etcd.insecure=true,commonLabels.a=b,hostNetwork=true,injector.enabled=true,injector.apiServerCIDR=::/0," + nodes, ""},
}

const (
	files = "extraVolumes[0].name=tls,extraVolumes[0].secret.secretName=tls,extraVolumeMounts[0].name=tls,extraVolumeMounts[0].mountPath=/tls"
	nodes = "priorityClassName=system-cluster-critical,tolerations[0].operator=Exists,nodeSelector.role=infra," +
		"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=a," +
		"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists"
	webhookRules = "injector.webhook.rules[0].apiGroups={ray.io},injector.webhook.rules[0].apiVersions={*}," +
		"injector.webhook.rules[0].resources={rayclusters},injector.webhook.rules[0].operations={CREATE}"
)

// valuesSchema is a JSON schema of the chart's values.
type valuesSchema struct {
	Ref         string `json:"$ref"`
	Type        any
	Enum        []string
	Properties  map[string]valuesSchema
	Definitions map[string]valuesSchema
}

// leaves calls visit for each value that has no properties, with all values of a boolean or an enumeration.
func (s valuesSchema) leaves(definitions map[string]valuesSchema, path []string, visit func(path []string, choices []string)) {
	if s.Ref != "" {
		s = definitions[strings.TrimPrefix(s.Ref, "#/definitions/")]
	}
	if s.Type == "boolean" {
		s.Enum = []string{"false", "true"}
	}
	if len(s.Properties) == 0 {
		visit(path, s.Enum)
	}
	for name, property := range s.Properties {
		property.leaves(definitions, append(slices.Clone(path), name), visit)
	}
}

// chartLeaves are the leaves of the chart's schema, with the choices of each, and the default values.
func chartLeaves(t *testing.T) (choices map[string][]string, defaults map[string]any) {
	t.Helper()
	var root valuesSchema
	expect.NoError(t, json.Unmarshal(read(t, "artifacts/chart/values.schema.json"), &root))
	expect.NoError(t, yaml.Unmarshal(read(t, "artifacts/chart/values.yaml"), &defaults))
	choices = map[string][]string{}
	root.leaves(root.Definitions, nil, func(path []string, all []string) { choices[strings.Join(path, ".")] = all })
	return choices, defaults
}

func defaultOf(defaults map[string]any, path string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(defaults, strings.Split(path, ".")...)
	return fmt.Sprint(value)
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, file))
	expect.NoError(t, err)
	return content
}

var (
	assignment = regexp.MustCompile(`([^,=]+)=(\{[^}]*\}|[^,]*)`)
	index      = regexp.MustCompile(`\[\d+\]`)
)

// TestVariants finds values of the schema that no variant sets. The variants together have all values of booleans and
// enumerations.
func TestVariants(t *testing.T) {
	t.Parallel()
	set := map[string]bool{}
	for _, variant := range variants {
		for _, found := range assignment.FindAllStringSubmatch(variant.set, -1) {
			path := index.ReplaceAllString(found[1], "")
			set[path+"="+found[2]] = true
			for parent := path; parent != ""; parent = parent[:max(0, strings.LastIndex(parent, "."))] {
				set[parent] = true
			}
		}
	}
	choices, defaults := chartLeaves(t)
	for path, all := range choices {
		if len(all) == 0 && !set[path] {
			t.Errorf("no variant sets %s", path)
		}
		for _, choice := range all {
			if !set[path+"="+choice] && choice != defaultOf(defaults, path) {
				t.Errorf("no variant has %s=%s", path, choice)
			}
		}
	}
}

// TestChartCombinations renders all pairs of what decides on objects and fields, and finds objects and Pods without the
// labels and annotations of the values.
func TestChartCombinations(t *testing.T) {
	t.Parallel()
	changes := []string{"etcd.servers={https://a:2379}", "injector.webhook.caBundle=YQ=="}
	choices, defaults := chartLeaves(t)
	for path, all := range choices {
		if len(all) == 2 {
			changes = append(changes, path+"="+all[(slices.Index(all, defaultOf(defaults, path))+1)%2])
		}
	}
	slices.Sort(changes)
	// Two numbers differ in a bit. One pair of rows has the changes with and without each bit; the last bit is 0 for all.
	for row := range 2 * (bits.Len(uint(len(changes)-1)) + 1) {
		set := "commonLabels.team=a,podLabels.mesh=b,podAnnotations.note=c,injector.apiServerCIDR=10.0.0.0/8"
		for i, change := range changes {
			if i>>(row/2)&1 == row%2 {
				set += "," + change
			}
		}
		for name, object := range objects(t, output(t, "", "helm template annex artifacts/chart -n elsewhere --set="+set)) {
			pod, found, _ := unstructured.NestedMap(object, "spec", "template", "metadata")
			if object["kind"] == "Pod" {
				pod, found = object["metadata"].(map[string]any), true
			}
			if !hasAll(object["metadata"].(map[string]any), "labels", "team") ||
				found && (!hasAll(pod, "labels", "team", "mesh") || !hasAll(pod, "annotations", "note")) {
				t.Errorf("%s lacks labels or annotations with %s", name, set)
			}
		}
	}
}

// TestChartInstallations renders the chart as docs/gitops.md and the examples install it, without a cluster or containers.
func TestChartInstallations(t *testing.T) {
	t.Parallel()
	const gitops = "artifacts/deploy/gitops/"
	values := func(file, kind string, path ...string) string {
		object := objects(t, string(read(t, gitops+file)))[kind]
		set, found, err := unstructured.NestedMap(object, path...)
		if err != nil || !found {
			t.Fatalf("%s has no values in %v: %v", file, path, err)
		}
		content, err := yaml.Marshal(set)
		expect.NoError(t, err)
		written := filepath.Join(t.TempDir(), "values.yaml")
		expect.NoError(t, os.WriteFile(written, content, 0o600))
		return "helm install annex artifacts/chart -n annex-system --values=" + written
	}
	quickStart := docs.Section{Page: "gitops.md", Heading: "## kind and k3d"}.Text(t)
	version := regexp.MustCompile(`make image VERSION=(\S+)`).FindStringSubmatch(quickStart)[1]
	for _, archive := range regexp.MustCompile(`\S+\.tar`).FindAllString(quickStart, -1) {
		expect.Equal(t, "bin/image/annex_"+version+"_image.tar", archive) // of hack/release
	}
	expect.Contains(t, quickStart, "-n annex-system rollout status statefulset/annex")
	for name, tt := range map[string]struct{ command, image string }{
		"quick start": {regexp.MustCompile(`helm install .*`).FindString(quickStart), "ghcr.io/annex-dev/annex:" + version},
		"Argo CD":     {values("argocd/application.yaml", "Application argocd/annex", "spec", "source", "helm", "valuesObject"), "registry.example.com/annex:v0.1.0"},
		"Flux":        {values("flux/helmrelease.yaml", "HelmRelease annex-system/annex", "spec", "values"), "registry.example.com/annex:v0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered := objects(t, output(t, "", strings.Replace(tt.command, "install", "template", 1)))
			containers, _, err := unstructured.NestedSlice(rendered["StatefulSet annex-system/annex"], "spec", "template", "spec", "containers")
			expect.NoError(t, err)
			if len(containers) != 1 || containers[0].(map[string]any)["image"] != tt.image {
				t.Errorf("%s installs the containers %v, want the image %s", tt.command, containers, tt.image)
			}
		})
	}
}

func hasAll(metadata map[string]any, field string, keys ...string) bool {
	found, _, _ := unstructured.NestedStringMap(metadata, field)
	return !slices.ContainsFunc(keys, func(key string) bool { return found[key] == "" })
}
