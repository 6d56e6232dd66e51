// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func conditions(all ...string) []metav1.Condition {
	var found []metav1.Condition
	for _, one := range all {
		words := strings.Fields(one)
		found = append(found, metav1.Condition{Type: words[0], Status: metav1.ConditionStatus(words[1]), Reason: words[2], Message: "m"})
	}
	return found
}

func store(all ...string) *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{Status: hostingv1alpha1.StoreStatus{Conditions: conditions(all...)}}
}

func hosted(all ...string) *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{Status: hostingv1alpha1.HostedResourceStatus{Conditions: conditions(all...)}}
}

func source(all ...string) *hostingv1alpha1.StaticSource {
	return &hostingv1alpha1.StaticSource{Status: hostingv1alpha1.StaticSourceStatus{Conditions: conditions(all...)}}
}

func migration(phase hostingv1alpha1.MigrationPhase, confirmed bool) *hostingv1alpha1.Migration {
	return &hostingv1alpha1.Migration{
		Spec:   hostingv1alpha1.MigrationSpec{Switch: hostingv1alpha1.MigrationSwitchManual, Confirmed: confirmed},
		Status: hostingv1alpha1.MigrationStatus{Phase: phase, Conditions: conditions("Complete False " + string(phase+"X"))},
	}
}

// healths are the healths that Argo CD and Flux find. Flux has its own for Stores and HostedResources.
var healths = map[string]struct {
	kind       string
	object     any
	argo, flux string
}{
	"a new Store":                  {"Store", store(), "Progressing", ""},
	"a Store that connects":        {"Store", store("Ready Unknown Connecting"), "Progressing", ""},
	"a Store":                      {"Store", store("UnderPressure False NoPressure", "Ready True Available"), "Healthy", ""},
	"a Store that is down":         {"Store", store("Ready False Unreachable"), "Degraded", ""},
	"a HostedResource":             {"HostedResource", hosted("Ready True Served"), "Healthy", ""},
	"one without a definition":     {"HostedResource", hosted("Ready False NotDefined"), "Progressing", ""},
	"one that is not published":    {"HostedResource", hosted("Ready False NotPublished"), "Degraded", ""},
	"a new Migration":              {"Migration", migration("", true), "Progressing", "InProgress"},
	"a Migration under way":        {"Migration", migration(hostingv1alpha1.MigrationCopying, true), "Progressing", "InProgress"},
	"one that waits":               {"Migration", migration(hostingv1alpha1.MigrationFollowing, false), "Suspended", "InProgress"},
	"a Migration that is complete": {"Migration", migration(hostingv1alpha1.MigrationCompleted, false), "Healthy", "Current"},
	"one that failed":              {"Migration", migration(hostingv1alpha1.MigrationFailed, true), "Degraded", "Failed"},
	"one that was deleted":         {"Migration", migration(hostingv1alpha1.MigrationCanceled, true), "Degraded", "Failed"},
	"a new StaticSource":           {"StaticSource", source(), "Progressing", "InProgress"},
	"a StaticSource":               {"StaticSource", source("Read True Complete", "Applied True Applied"), "Healthy", "Current"},
	"one that cannot be read":      {"StaticSource", source("Read False ReadFailed", "Applied True Applied"), "Degraded", "Failed"},
}

// TestArgoCD runs the health checks with the Lua that Argo CD has.
func TestArgoCD(t *testing.T) {
	t.Parallel()
	scripts := read[corev1.ConfigMap](t, "gitops/argocd/argocd-cm.yaml").Data
	for name, tc := range healths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := lua.NewState()
			defer state.Close()
			state.SetGlobal("obj", luaValue(state, fields(t, tc.object)))
			expect.NoError(t, state.DoString(scripts["resource.customizations.health.hosting.annex.dev_"+tc.kind]))
			found, ok := state.Get(-1).(*lua.LTable)
			if !ok || found.RawGetString("status").String() != tc.argo || found.RawGetString("message").Type() != lua.LTString {
				t.Errorf("the health is %v %v, want %s", found.RawGetString("status"), found.RawGetString("message"), tc.argo)
			}
		})
	}
}

// TestFlux evaluates the expressions for the health of objects. TestGitOps, an end-to-end test, holds the manifests to Flux's
// CRDs.
func TestFlux(t *testing.T) {
	t.Parallel()
	exprs := fluxExprs(t)
	environment, err := cel.NewEnv(cel.Variable("status", cel.DynType))
	expect.NoError(t, err)
	for name, tc := range healths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object, health := fields(t, tc.object), ""
			if expr, is := exprs[tc.kind]; is {
				health = "InProgress"
				for status, text := range map[string]string{"Current": expr.Current, "Failed": expr.Failed} {
					if evaluate(t, environment, text, object) {
						health = status
					}
				}
			}
			expect.Equal(t, tc.flux, health)
		})
	}
}

// application has the fields of Argo CD's Application that the example sets. Its CRD is not among pkg/test/crds: the archive
// of that module is too large.
type application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Project string `json:"project"`
		Source  struct {
			RepoURL        string `json:"repoURL"`
			TargetRevision string `json:"targetRevision"`
			Path           string `json:"path"`
			Helm           struct {
				ValuesObject map[string]any `json:"valuesObject"`
			} `json:"helm"`
		} `json:"source"`
		Destination struct {
			Server    string `json:"server"`
			Namespace string `json:"namespace"`
		} `json:"destination"`
		SyncPolicy struct {
			Automated struct {
				SelfHeal bool `json:"selfHeal"`
			} `json:"automated"`
			SyncOptions []string `json:"syncOptions"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// TestApplication: Argo CD installs the chart that is here.
func TestApplication(t *testing.T) {
	t.Parallel()
	found := read[application](t, "gitops/argocd/application.yaml")
	expect.Equal(t, read[map[string]any](t, "gitops/argocd/application.yaml"), fields(t, found)) // in upper and lower case too
	expect.Equal(t, "argoproj.io/v1alpha1 Application", found.APIVersion+" "+found.Kind)
	_, err := os.Stat("../../" + found.Spec.Source.Path + "/Chart.yaml")
	expect.NoError(t, err)
}

type fluxExpr struct{ Kind, Current, Failed string }

func fluxExprs(t *testing.T) map[string]fluxExpr {
	t.Helper()
	content, err := os.ReadFile("gitops/flux/annex.yaml")
	expect.NoError(t, err)
	found := map[string]fluxExpr{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var kustomization struct {
			Spec struct{ HealthCheckExprs []fluxExpr }
		}
		expect.NoError(t, yaml.Unmarshal([]byte(document), &kustomization))
		for _, expr := range kustomization.Spec.HealthCheckExprs {
			found[expr.Kind] = expr
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no expression")
	}
	return found
}

func evaluate(t *testing.T, environment *cel.Env, text string, object map[string]any) bool {
	t.Helper()
	compiled, issues := environment.Compile(text)
	expect.NoError(t, issues.Err(), "compile %s", text)
	program, err := environment.Program(compiled)
	expect.NoError(t, err)
	result, _, err := program.Eval(map[string]any{"status": object["status"]})
	expect.NoError(t, err, "evaluate %s", text)
	return result.Value() == true
}

func fields(t *testing.T, object any) map[string]any {
	t.Helper()
	content, err := json.Marshal(object)
	expect.NoError(t, err)
	var found map[string]any
	expect.NoError(t, json.Unmarshal(content, &found))
	return found
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, field := range value {
			table.RawSetString(name, luaValue(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(luaValue(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case nil:
		return lua.LNil
	}
	panic(fmt.Sprintf("a field is of type %T", value))
}
