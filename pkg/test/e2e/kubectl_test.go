// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// widget returns the manifest of a Widget.
func widget(namespace, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":%q,"name":%q},"spec":%s}`, namespace, name, spec)
}

// TestKubectl runs the commands of kubectl on one server.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	s.kubectl.run(t, "apply", "-f", widgetCRD)
	s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
	poll.UntilDone(t, "discovery of widgets", func() (bool, string) {
		result := s.kubectl.try(t, "", "api-resources", "--cached=false", "--api-group=example.com")
		return strings.Contains(result.stdout, "widgets"), result.stdout + result.stderr
	})

	for name, test := range map[string]func(*testing.T, *server){
		"discovery":    testDiscovery,
		"explain":      testExplain,
		"get-watch":    testGetWatch,
		"apply-client": testApplyClientSide,
		"apply-server": testApplyServerSide,
		"diff":         testDiff,
		"edit":         testEdit,
		"patch-typed":  testPatchTyped,
		"scale":        testScale,
		"selectors":    testSelectors,
		"create-typed": testCreateTyped,
		"events":       testEvents,
		"wait":         testWait,
		"tables":       testTables,
		"versions":     testVersions,
		"completion":   testCompletion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

func testDiscovery(t *testing.T, s *server) {
	resources := s.kubectl.run(t, "api-resources", "--no-headers")
	for _, want := range []string{
		"namespaces", "configmaps", "secrets", "serviceaccounts", "events", "leases", "customresourcedefinitions", "apiservices",
		"stores", "hostedresources", "migrations", "staticsources", "widgets",
	} {
		if !strings.Contains("\n"+resources, "\n"+want+" ") {
			t.Errorf("api-resources lacks %s:\n%s", want, resources)
		}
	}
	expect.Contains(t, s.kubectl.run(t, "api-versions"),
		"v1\n", "apiextensions.k8s.io/v1\n", "apiregistration.k8s.io/v1\n", "coordination.k8s.io/v1\n", "events.k8s.io/v1\n",
		"example.com/v1\n", "example.com/v1beta1\n", "hosting.annex.dev/v1alpha1\n")
	expect.Contains(t, s.kubectl.run(t, "api-resources", "--categories=examples"), "widgets")

	version := s.kubectl.run(t, "version", "-o", "json")
	var versions struct {
		ServerVersion struct{ Major, Minor, GitVersion string }
	}
	expect.NoError(t, json.Unmarshal([]byte(version), &versions))
	if got := versions.ServerVersion; got.Major != "1" || got.Minor != "37" || !strings.HasPrefix(got.GitVersion, "v1.37.") || !strings.Contains(got.GitVersion, "+annex.") {
		t.Errorf("the server version is %+v", got)
	}
}

func testExplain(t *testing.T, s *server) {
	expect.Contains(t, s.kubectl.run(t, "explain", "configmap.data"), "KIND:", "ConfigMap", "FIELD: data")
	expect.Contains(t, s.kubectl.run(t, "explain", "crd.spec.versions.schema"), "openAPIV3Schema")
	expect.Contains(t, s.kubectl.run(t, "explain", "store.spec"), "embedded", "etcd", "taints", "unschedulable")
	expect.Contains(t, s.kubectl.run(t, "explain", "hostedresource.spec.storeName"), "FIELD: storeName", "the Store of the objects")
	expect.Contains(t, s.kubectl.run(t, "explain", "hostedresource.status", "--recursive"), "storedBytes", "conditions", "lastTransitionTime")
	// OpenAPI of a CRD is published shortly after its discovery.
	poll.UntilDone(t, "explain of a custom resource", func() (bool, string) {
		result := s.kubectl.try(t, "", "explain", "widget.spec.parts.count")
		return strings.Contains(result.stdout, "How many of the part"), result.stdout + result.stderr
	})
	expect.Contains(t, s.kubectl.run(t, "explain", "widget", "--api-version=example.com/v1beta1"), "VERSION:    v1beta1", "something to count")
}

func testGetWatch(t *testing.T, s *server) {
	namespace := s.namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	command := s.kubectl.command(ctx, "get", "widgets", "-n", namespace, "-w", "--output-watch-events", "-o", "custom-columns=E:.type,N:.object.metadata.name,R:.object.spec.replicas", "--no-headers")
	stdout, err := command.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, command.Start())
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- strings.Join(strings.Fields(scanner.Text()), " ")
		}
	}()
	expect := func(want string) {
		t.Helper()
		if got, ok := <-lines; !ok || got != want {
			t.Fatalf("the watch printed %q, want %q", got, want)
		}
	}
	s.kubectl.feed(t, widget(namespace, "one", `{"replicas":1}`), "create", "-f", "-")
	expect("ADDED one 1")
	s.kubectl.run(t, "scale", "widget/one", "-n", namespace, "--replicas=2")
	expect("MODIFIED one 2")
	s.kubectl.run(t, "delete", "widget/one", "-n", namespace)
	expect("DELETED one 2")
	cancel()
	for range lines { // until the pipe is closed
	}
	_ = command.Wait() // killed by cancel
}

func testApplyClientSide(t *testing.T, s *server) {
	namespace := s.namespace(t)
	expect.Contains(t, s.kubectl.feed(t, widget(namespace, "a", `{"color":"red","replicas":2}`), "apply", "-f", "-"), "created")
	expect.Contains(t, s.kubectl.feed(t, widget(namespace, "a", `{"color":"red","replicas":2}`), "apply", "-f", "-"), "unchanged")
	// A field that is no longer applied gets its default.
	expect.Contains(t, s.kubectl.feed(t, widget(namespace, "a", `{"replicas":3}`), "apply", "-f", "-"), "configured")
	if got := s.kubectl.run(t, "get", "widget", "a", "-n", namespace, "-o", "jsonpath={.spec.color} {.spec.replicas}"); got != "blue 3" {
		t.Errorf("after apply the widget is %q", got)
	}

	configMap := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"a"},"data":%s}`
	expect.Contains(t, s.kubectl.feed(t, fmt.Sprintf(configMap, namespace, `{"x":"1","y":"1"}`), "apply", "-f", "-"), "created")
	expect.Contains(t, s.kubectl.feed(t, fmt.Sprintf(configMap, namespace, `{"x":"2"}`), "apply", "-f", "-"), "configured")
	if got := s.kubectl.run(t, "get", "configmap", "a", "-n", namespace, "-o", "jsonpath={.data}"); got != `{"x":"2"}` {
		t.Errorf("after apply the data is %s", got)
	}
}

func testApplyServerSide(t *testing.T, s *server) {
	namespace := s.namespace(t)
	apply := func(spec, manager string) output {
		return s.kubectl.try(t, widget(namespace, "a", spec), "apply", "--server-side", "--field-manager="+manager, "-f", "-")
	}
	if result := apply(`{"color":"red","parts":[{"name":"wheel","count":4}]}`, "alice"); result.code != 0 {
		t.Fatal(result.stderr)
	}
	// Another manager owns an item in the same list.
	if result := apply(`{"parts":[{"name":"axle"}]}`, "bob"); result.code != 0 {
		t.Fatal(result.stderr)
	}
	if got := s.kubectl.run(t, "get", "widget", "a", "-n", namespace, "-o", "jsonpath={.spec.parts[*].name}"); got != "wheel axle" {
		t.Errorf("the parts are %q", got)
	}
	if result := apply(`{"color":"green"}`, "bob"); result.code == 0 || !strings.Contains(result.stderr, `conflict with "alice"`) {
		t.Errorf("a conflict was not refused: %+v", result)
	}
	s.kubectl.feed(t, widget(namespace, "a", `{"color":"green"}`), "apply", "--server-side", "--field-manager=bob", "--force-conflicts", "-f", "-")
	if result := apply(`{}`, "alice"); result.code != 0 {
		t.Fatal(result.stderr)
	}
	// The wheel has no owner any more; bob took over the color and gave up the axle.
	if got := s.kubectl.run(t, "get", "widget", "a", "-n", namespace, "-o", "jsonpath={.spec.color} {.spec.parts[*].name}"); got != "green " {
		t.Errorf("the widget is %q", got)
	}
}

func testDiff(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{"replicas":2}`), "apply", "-f", "-")
	if result := s.kubectl.try(t, widget(namespace, "a", `{"replicas":2}`), "diff", "-f", "-"); result.code != 0 {
		t.Errorf("diff of nothing: %+v", result)
	}
	result := s.kubectl.try(t, widget(namespace, "a", `{"replicas":5}`), "diff", "-f", "-")
	if result.code != 1 {
		t.Errorf("diff exits with %d: %s", result.code, result.stderr)
	}
	expect.Contains(t, result.stdout, "-  replicas: 2", "+  replicas: 5")
	if got := s.kubectl.run(t, "get", "widget", "a", "-n", namespace, "-o", "jsonpath={.spec.replicas}"); got != "2" {
		t.Errorf("diff changed the widget: %s replicas", got)
	}
}

func testEdit(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{"color":"red"}`), "create", "-f", "-")
	editor := filepath.Join(t.TempDir(), "editor")
	expect.NoError(t, os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/color: red/color: green/' \"$1\"\n"), 0o700))
	command := s.kubectl.command(t.Context(), "edit", "widget", "a", "-n", namespace)
	command.Env = append(command.Env, "KUBE_EDITOR="+editor)
	if printed, err := command.CombinedOutput(); err != nil {
		t.Fatalf("kubectl edit: %v: %s", err, printed)
	}
	if got := s.kubectl.run(t, "get", "widget", "a", "-n", namespace, "-o", "jsonpath={.spec.color}"); got != "green" {
		t.Errorf("after the edit the color is %s", got)
	}
}

func testPatchTyped(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.run(t, "create", "configmap", "a", "-n", namespace, "--from-literal=x=1", "--from-literal=y=1")
	for kind, patch := range map[string]string{
		"strategic": `{"data":{"strategic":"1"}}`,
		"merge":     `{"data":{"merge":"1","x":null}}`,
		"json":      `[{"op":"add","path":"/data/json","value":"1"},{"op":"test","path":"/data/y","value":"1"}]`,
	} {
		s.kubectl.run(t, "patch", "configmap", "a", "-n", namespace, "--type="+kind, "-p", patch)
	}
	got := s.kubectl.run(t, "get", "configmap", "a", "-n", namespace, "-o", "jsonpath={.data}")
	expect.Contains(t, got, `"strategic":"1"`, `"merge":"1"`, `"json":"1"`, `"y":"1"`)
	if strings.Contains(got, `"x"`) {
		t.Errorf("null did not remove a field: %s", got)
	}
}

func testScale(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{"replicas":2}`), "create", "-f", "-")
	s.kubectl.run(t, "scale", "widget/a", "-n", namespace, "--current-replicas=2", "--replicas=5")
	if got := s.kubectl.run(t, "get", "widget", "a", "-n", namespace, "-o", "jsonpath={.spec.replicas}"); got != "5" {
		t.Errorf("after scale there are %s replicas", got)
	}
	s.kubectl.refuse(t, "", []string{"scale", "widget/a", "-n", namespace, "--current-replicas=2", "--replicas=6"}, "Expected replicas to be 2, was 5")
	s.kubectl.refuse(t, "", []string{"scale", "widget/a", "-n", namespace, "--replicas=11"}, "replicas must not be above limit")
}

func testSelectors(t *testing.T, s *server) {
	namespace := s.namespace(t)
	for name, spec := range map[string]string{"a": `{"color":"red"}`, "b": `{"color":"green"}`, "c": `{"color":"red"}`} {
		s.kubectl.feed(t, widget(namespace, name, spec), "create", "-f", "-")
	}
	s.kubectl.run(t, "label", "widget", "a", "b", "-n", namespace, "shop=corner")
	s.kubectl.run(t, "annotate", "widget", "a", "-n", namespace, "note=first")
	names := func(args ...string) string {
		t.Helper()
		return s.kubectl.run(t, append([]string{"get", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}"}, args...)...)
	}
	for selection, want := range map[string]string{
		"-l shop=corner":                                 "a b",
		"-l !shop":                                       "c",
		"-l shop in (corner,main)":                       "a b",
		"--field-selector metadata.name=b":               "b",
		"--field-selector spec.color=red":                "a c",
		"--field-selector spec.color!=red":               "b",
		"-l shop=corner --field-selector spec.color=red": "a",
	} {
		var args []string
		for _, flag := range strings.Split(strings.ReplaceAll(selection, " --", "\n--"), "\n") {
			name, value, _ := strings.Cut(flag, " ")
			args = append(args, name, value)
		}
		if got := names(append([]string{"widgets"}, args...)...); got != want {
			t.Errorf("get %s: %q, want %q", selection, got, want)
		}
	}
	s.kubectl.refuse(t, "", []string{"get", "widgets", "-n", namespace, "--field-selector", "spec.replicas=1"}, "field label not supported")
	s.kubectl.run(t, "create", "secret", "generic", "s", "-n", namespace, "--type=example.com/own")
	if got := names("secrets", "--field-selector", "type=example.com/own"); got != "s" {
		t.Errorf("secrets of a type: %q", got)
	}
	s.kubectl.run(t, "delete", "widgets", "-n", namespace, "-l", "shop=corner")
	if got := names("widgets"); got != "c" {
		t.Errorf("after a delete by label: %q", got)
	}
	// In chunks of one object.
	if got := names("configmaps,widgets", "--chunk-size=1"); got != "kube-root-ca.crt c" {
		t.Errorf("in chunks: %q", got)
	}
}

func testCreateTyped(t *testing.T, s *server) {
	namespace := s.namespace(t)
	file := filepath.Join(t.TempDir(), "content")
	expect.NoError(t, os.WriteFile(file, []byte{0xff, 0x00, 0x01}, 0o600))
	s.kubectl.run(t, "create", "configmap", "c", "-n", namespace, "--from-literal=a=1", "--from-file=raw="+file)
	if got := s.kubectl.run(t, "get", "cm", "c", "-n", namespace, "-o", "jsonpath={.data.a} {.binaryData.raw}"); got != "1 /wAB" {
		t.Errorf("the configmap holds %q", got)
	}
	s.kubectl.run(t, "create", "secret", "generic", "s", "-n", namespace, "--from-literal=password=x")
	if got := s.kubectl.run(t, "get", "secret", "s", "-n", namespace, "-o", "jsonpath={.type} {.data.password}"); got != "Opaque eA==" {
		t.Errorf("the secret holds %q", got)
	}
	s.kubectl.run(t, "create", "secret", "docker-registry", "d", "-n", namespace, "--docker-server=r.example.com", "--docker-username=u", "--docker-password=p")
	s.kubectl.run(t, "create", "serviceaccount", "sa", "-n", namespace)
	s.kubectl.run(t, "get", "sa/sa", "secret/d", "-n", namespace)

	s.kubectl.refuse(t, "", []string{"create", "configmap", "Not_A_Name", "-n", namespace}, `Invalid value: "Not_A_Name"`)
	s.kubectl.refuse(t, "", []string{"create", "namespace", "Upper"}, "Invalid value")
	s.kubectl.refuse(t, "", []string{"create", "configmap", "c", "-n", namespace}, "already exists")
	s.kubectl.refuse(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":%q,"name":"bad"},"data":{"k":"not base64!"}}`, namespace),
		[]string{"create", "-f", "-"}, "illegal base64")
}

func testEvents(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{}`), "create", "-f", "-")
	event := `{"apiVersion":"v1","kind":"Event","metadata":{"namespace":%q,"name":"a.1"},"type":"Warning","reason":"Dull","message":"needs paint",
		"involvedObject":{"apiVersion":"example.com/v1","kind":"Widget","namespace":%q,"name":"a"},"count":2,
		"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:05:05Z","source":{"component":"painter"}}`
	s.kubectl.feed(t, fmt.Sprintf(event, namespace, namespace), "create", "-f", "-")
	expect.Contains(t, s.kubectl.run(t, "events", "-n", namespace, "--for", "widgets.example.com/a"), "Warning", "Dull", "Widget/a", "needs paint")
	expect.Contains(t, s.kubectl.run(t, "get", "events", "-n", namespace), "widget/a", "needs paint")
	// Both groups show the same events.
	expect.Contains(t, s.kubectl.run(t, "get", "events.events.k8s.io", "a.1", "-n", namespace, "-o", "yaml"), "apiVersion: events.k8s.io/v1", "note: needs paint", "regarding:")
	if got := s.kubectl.run(t, "get", "events", "-n", namespace, "--field-selector", "involvedObject.name=a,reason=Dull", "-o", "name"); got != "event/a.1\n" {
		t.Errorf("events of the widget: %q", got)
	}
}

func testWait(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{}`), "create", "-f", "-")
	waiter := s.kubectl.command(t.Context(), "wait", "widget/a", "-n", namespace, "--for=jsonpath={.status.phase}=Painted", "--timeout=60s")
	expect.NoError(t, waiter.Start())
	s.kubectl.run(t, "patch", "widget", "a", "-n", namespace, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Painted"}}`)
	expect.Succeeds(t, waiter.Wait(), "wait for the phase")
	// It checks once.
	s.kubectl.refuse(t, "", []string{"wait", "widget/a", "-n", namespace, "--for=delete", "--timeout=0"}, "condition not met")
	waiter = s.kubectl.command(t.Context(), "wait", "widget/a", "-n", namespace, "--for=delete", "--timeout=60s")
	expect.NoError(t, waiter.Start())
	s.kubectl.run(t, "delete", "widget", "a", "-n", namespace, "--wait=false")
	expect.Succeeds(t, waiter.Wait(), "wait for the deletion")
}

func testTables(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{"color":"red"}`), "create", "-f", "-")
	s.kubectl.run(t, "create", "configmap", "c", "-n", namespace, "--from-literal=a=1")
	s.kubectl.run(t, "create", "secret", "generic", "s", "-n", namespace, "--from-literal=a=1")
	s.kubectl.run(t, "create", "serviceaccount", "sa", "-n", namespace)
	s.kubectl.feed(t, fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":%q,"name":"l"},"spec":{"holderIdentity":"me"}}`, namespace), "create", "-f", "-")
	for resource, columns := range map[string][]string{
		"widgets":                     {"NAME", "COLOR", "REPLICAS", "PHASE", "AGE"},
		"widgets -o wide":             {"NAME", "COLOR", "REPLICAS", "PHASE", "SERIAL", "AGE"},
		"widgets.v1beta1.example.com": {"NAME", "COLOR", "REPLICAS", "PHASE", "AGE"},
		"configmaps":                  {"NAME", "DATA", "AGE"},
		"secrets":                     {"NAME", "TYPE", "DATA", "AGE"},
		"serviceaccounts":             {"NAME", "AGE"},
		"leases":                      {"NAME", "HOLDER", "AGE"},
		"namespaces":                  {"NAME", "STATUS", "AGE"},
		"apiservices":                 {"NAME", "SERVICE", "AVAILABLE", "AGE"},
		"crds":                        {"NAME", "SCOPE", "VERSIONS", "CREATED", "AT"},
		"widgets -A":                  {"NAMESPACE", "NAME", "COLOR", "REPLICAS", "PHASE", "AGE"},
		"widgets -L shop":             {"NAME", "COLOR", "REPLICAS", "PHASE", "AGE", "SHOP"},
	} {
		matchesColumns(t, s.kubectl.run(t, append([]string{"get", "-n", namespace}, strings.Fields(resource)...)...), columns...)
	}
	expect.Contains(t, s.kubectl.run(t, "get", "stores"), "NAME", "READY", "default")
	expect.Contains(t, s.kubectl.run(t, "get", "hostedresources"), "NAME", "PHASE", "OBJECTS", "widgets.example.com")
	expect.Contains(t, s.kubectl.run(t, "describe", "widget", "a", "-n", namespace), "Name:", "Color:", "red")
}

func testVersions(t *testing.T, s *server) {
	namespace := s.namespace(t)
	old := strings.Replace(widget(namespace, "a", `{"color":"red"}`), "example.com/v1", "example.com/v1beta1", 1)
	result := s.kubectl.try(t, old, "create", "-f", "-")
	if result.code != 0 || !strings.Contains(result.stderr, "Warning: example.com/v1beta1 Widget is deprecated; use v1") {
		t.Errorf("create in a deprecated version: %+v", result)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		got := s.kubectl.run(t, "get", "widgets."+version+".example.com", "a", "-n", namespace, "-o", "jsonpath={.apiVersion} {.spec.color}")
		if want := "example.com/" + version + " red"; got != want {
			t.Errorf("in %s the widget is %q, want %q", version, got, want)
		}
	}
}

// testCompletion completes a command, an argument and a flag of the plugin, as shells do through kubectl.
func testCompletion(t *testing.T, s *server) {
	for typed, want := range map[string]string{"annex dra": "drain", "annex drain ": "default", "annex place x.example.com --store=": "default"} {
		command := s.kubectl.command(t.Context(), append([]string{"__complete"}, strings.Split(typed, " ")...)...)
		command.Env = append(command.Env, "PATH="+filepath.Dir(programs.annex))
		printed, err := command.Output()
		expect.NoError(t, err)
		if lines := strings.Split(string(printed), "\n"); !strings.HasPrefix(lines[0], want) {
			t.Errorf("kubectl %s completes with %q, want %q", typed, printed, want)
		}
	}
}
