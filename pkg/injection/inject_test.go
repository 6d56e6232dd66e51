// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/annex-dev/annex/pkg/apis/hosting/injectionpath"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// from decodes YAML.
func from(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	expect.NoError(t, yaml.Unmarshal([]byte(text), &object), "decode %s", text)
	return runtime.DeepCopyJSON(object)
}

func raw(texts ...string) []runtime.RawExtension {
	var all []runtime.RawExtension
	for _, text := range texts {
		all = append(all, runtime.RawExtension{Raw: []byte(text)})
	}
	return all
}

// newProfile injects one part of each kind.
func newProfile(templates ...v1alpha1.InjectionTemplate) *v1alpha1.InjectionProfile {
	return &v1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: v1alpha1.InjectionProfileSpec{
			Targets:        []v1alpha1.InjectionTarget{{Resource: "jobs.example.com", Templates: templates}},
			Containers:     raw(`{"name":"agent","image":"agent:1"}`),
			InitContainers: raw(`{"name":"setup","image":"setup:1"}`),
			Volumes:        raw(`{"name":"logs","emptyDir":{}}`),
			VolumeMounts:   raw(`{"name":"logs","mountPath":"/logs"}`),
			Env:            raw(`{"name":"LOGS","value":"/logs"}`),
		},
	}
}

var podTemplate = v1alpha1.InjectionTemplate{Path: "spec.template", Type: v1alpha1.InjectionPodTemplate}

func newTarget(t *testing.T, profile *v1alpha1.InjectionProfile) *Target {
	t.Helper()
	target, err := NewTarget(profile, 0)
	expect.NoError(t, err)
	return target
}

// withoutRecord removes the annotation of an injected object, which must have one.
func withoutRecord(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	if !IsInjected(object) {
		t.Errorf("the object has no record: %v", object)
	}
	object = runtime.DeepCopyJSON(object)
	var none *record
	expect.NoError(t, none.write(object))
	delete(object, "metadata")
	return object
}

const (
	injectedMain     = `{name: main, volumeMounts: [{name: logs, mountPath: /logs}], env: [{name: LOGS, value: /logs}]}`
	injectedAgent    = `{name: agent, image: "agent:1"}`
	injectedSetup    = `{name: setup, image: "setup:1"}`
	injectedLogs     = `{name: logs, emptyDir: {}}`
	injectedRest     = `initContainers: [` + injectedSetup + `], volumes: [` + injectedLogs + `]`
	injectedTemplate = `{spec: {containers: [` + injectedMain + `, ` + injectedAgent + `], ` + injectedRest + `}}`
	injectedPod      = `{containers: [` + injectedMain + `, ` + injectedAgent + `], ` + injectedRest + `}`
)

func TestInject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		template     v1alpha1.InjectionTemplate
		object, want string
	}{
		"pod template": {podTemplate, `spec: {template: {spec: {containers: [{name: main}]}}}`, `spec: {template: ` + injectedTemplate + `}`},
		"pod spec": {v1alpha1.InjectionTemplate{Path: "spec.pod", Type: v1alpha1.InjectionPodSpec},
			`spec: {pod: {containers: [{name: main}]}}`, `spec: {pod: ` + injectedPod + `}`},
		"items": {v1alpha1.InjectionTemplate{Path: "spec.groups[*].template", Type: v1alpha1.InjectionPodTemplate},
			`spec: {groups: [{template: {spec: {containers: [{name: main}]}}}, {replicas: 1}]}`,
			`spec: {groups: [{template: ` + injectedTemplate + `}, {replicas: 1}]}`},
		"values": {v1alpha1.InjectionTemplate{Path: "spec.roles[*]", Type: v1alpha1.InjectionPodSpec},
			`spec: {roles: {a: {containers: [{name: main}]}, b: {containers: [{name: main}]}}}`,
			`spec: {roles: {a: ` + injectedPod + `, b: ` + injectedPod + `}}`},
		"no names": {podTemplate, `spec: {template: {spec: {containers: [{image: a}, {image: b}]}}}`,
			`spec: {template: {spec: {containers: [{image: a, volumeMounts: [{name: logs, mountPath: /logs}], env: [{name: LOGS, value: /logs}]},
			  {image: b, volumeMounts: [{name: logs, mountPath: /logs}], env: [{name: LOGS, value: /logs}]}, ` + injectedAgent + `], ` + injectedRest + `}}}`},
		"Argo": {v1alpha1.InjectionTemplate{Path: "spec.templates[*]", Type: v1alpha1.InjectionArgoTemplate},
			`spec: {templates: [{name: a, container: {image: i}}, {name: b, steps: []}]}`,
			`spec: {templates: [{name: a, container: {image: i, volumeMounts: [{name: logs, mountPath: /logs}], env: [{name: LOGS, value: /logs}]}, sidecars: [` +
				injectedAgent + `], ` + injectedRest + `}, {name: b, steps: []}]}`},
		"own parts are kept": {podTemplate,
			`spec: {template: {spec: {containers: [{name: main, env: [{name: LOGS, value: mine}]}], initContainers: [{name: own, volumeMounts: [{name: own, mountPath: /logs}]}], volumes: [{name: own}]}}}`,
			`spec: {template: {spec: {containers: [{name: main, env: [{name: LOGS, value: mine}], volumeMounts: [{name: logs, mountPath: /logs}]}, ` + injectedAgent + `],
			  initContainers: [` + injectedSetup + `, {name: own, volumeMounts: [{name: own, mountPath: /logs}], env: [{name: LOGS, value: /logs}]}], volumes: [{name: own}, ` + injectedLogs + `]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, object := newTarget(t, newProfile(test.template)), from(t, test.object)
			got, err := Inject(t.Context(), target, object, nil)
			expect.NoError(t, err)
			expect.Equal(t, from(t, test.object), object, "the argument")
			expect.Equal(t, from(t, test.want), withoutRecord(t, got), "injected")

			again, err := Inject(t.Context(), target, got, nil)
			expect.NoError(t, err)
			expect.Equal(t, got, again, "a second time")
			updated, err := Inject(t.Context(), target, got, got)
			expect.NoError(t, err)
			expect.Equal(t, got, updated, "update")
			applied, err := Inject(t.Context(), target, object, got)
			expect.NoError(t, err)
			expect.Equal(t, got, applied, "replaced by the manifest")
			removed, err := Inject(t.Context(), nil, got, nil)
			expect.NoError(t, err)
			delete(removed, "metadata")
			expect.Equal(t, object, removed, "without a profile")
		})
	}
}

// What is no pod template is stored as it is, for the definition to judge.
func TestInjectNothing(t *testing.T) {
	t.Parallel()
	target := newTarget(t, newProfile(podTemplate))
	for _, text := range []string{
		`{}`, `spec: 1`, `spec: {template: [1]}`, `spec: {template: {spec: null}}`, `spec: {template: {spec: {containers: []}}}`,
		`spec: {template: {spec: {containers: {name: a}}}}`, `spec: {template: {containers: [{name: a}]}}`,
	} {
		got, err := Inject(t.Context(), target, from(t, text), nil)
		expect.NoError(t, err)
		if IsInjected(got) {
			t.Errorf("%s has the record of an injection", text)
		}
		delete(got, "metadata")
		expect.Equal(t, from(t, text), got, "%s", text)
	}
	for _, text := range []string{`spec: {template: {spec: {containers: [1, a, null], volumes: x, initContainers: {}}}}`} {
		_, err := Inject(t.Context(), target, from(t, text), nil)
		expect.NoError(t, err, "%s", text)
	}
}

func TestInjectConflicts(t *testing.T) {
	t.Parallel()
	target := newTarget(t, newProfile(podTemplate))
	for text, field := range map[string]string{
		`spec: {template: {spec: {containers: [{name: main}, {name: agent}]}}}`:                                "spec.template.spec.containers[1].name",
		`spec: {template: {spec: {containers: [{name: setup}]}}}`:                                              "spec.template.spec.containers[0].name",
		`spec: {template: {spec: {containers: [{name: main}], initContainers: [{name: agent}]}}}`:              "spec.template.spec.initContainers[0].name",
		`spec: {template: {spec: {containers: [{name: main}], volumes: [{name: logs, hostPath: {}}]}}}`:        "spec.template.spec.volumes[0].name",
		`metadata: {annotations: {annex.dev/injected: ` + strings.Repeat("a", 300<<10) + `}}`:                  "metadata.annotations[annex.dev/injected]: Too long",
		`metadata: {annotations: {annex.dev/injected: '{"templates":[` + strings.Repeat(`{},`, 20) + `{}]}'}}`: "has more than 16 templates",
		`metadata: {annotations: {annex.dev/injected: "no"}}`:                                                  "metadata.annotations[annex.dev/injected]",
		`metadata: {annotations: {annex.dev/injected: '{"templates":[{"path":"a","type":"b"}]}'}}`:             "metadata.annotations[annex.dev/injected]",
		`metadata: {annotations: {annex.dev/injected: '{"templates":[{"path":"a[","type":"PodSpec"}]}'}}`:      "metadata.annotations[annex.dev/injected]",
	} {
		_, err := Inject(t.Context(), target, from(t, text), nil)
		expect.Error(t, err, field)
	}
}

// An update of an injected object keeps what was injected, unless the client changed a pod template.
func TestInjectUpdate(t *testing.T) {
	t.Parallel()
	first := newTarget(t, newProfile(podTemplate))
	changed := newProfile(podTemplate)
	changed.Spec.Containers = raw(`{"name":"agent","image":"agent:2"}`)
	second := newTarget(t, changed)
	other := newProfile(podTemplate)
	other.Name, other.Spec.Containers = "other", raw(`{"name":"proxy","image":"proxy:1"}`)
	third := newTarget(t, other)

	manifest := from(t, `spec: {replicas: 1, template: {spec: {containers: [{name: main}]}}}`)
	stored, err := Inject(t.Context(), first, manifest, nil)
	expect.NoError(t, err)
	edit := func(object map[string]any, edits ...string) map[string]any {
		object = runtime.DeepCopyJSON(object)
		spec := object["spec"].(map[string]any)
		pod := spec["template"].(map[string]any)["spec"].(map[string]any)
		containers := pod["containers"].([]any)
		for _, e := range edits {
			switch e {
			case "scale":
				spec["replicas"] = int64(2)
			case "own image":
				containers[0].(map[string]any)["image"] = "main:2"
			case "sidecar image":
				containers[1].(map[string]any)["image"] = "agent:patched"
			case "new container":
				pod["containers"] = append([]any{map[string]any{"name": "new"}}, containers...)
			case "opt out":
				metadata, _ := object["metadata"].(map[string]any)
				if metadata == nil {
					metadata = map[string]any{}
					object["metadata"] = metadata
				}
				annotations, _ := metadata["annotations"].(map[string]any)
				if annotations == nil {
					annotations = map[string]any{}
					metadata["annotations"] = annotations
				}
				annotations[v1alpha1.InjectAnnotation] = "false"
			}
		}
		return object
	}
	for name, test := range map[string]struct {
		target *Target
		object map[string]any
		// agent is the image of the sidecar afterwards; other containers are named.
		want string
	}{
		"other field":                             {second, edit(stored, "scale"), "main= agent=agent:1"},
		"other field, of the manifest":            {second, edit(manifest, "scale"), "main= agent=agent:1"},
		"other field, no profile left":            {nil, edit(stored, "scale"), "main= agent=agent:1"},
		"the manifest, another profile":           {third, manifest, "main= agent=agent:1"},
		"sidecar edited":                          {first, edit(stored, "sidecar image"), "main= agent=agent:patched"},
		"sidecar edited before another profile":   {second, edit(stored, "sidecar image"), "main= agent=agent:patched"},
		"template changed, same profile":          {first, edit(stored, "own image", "sidecar image"), "main=main:2 agent=agent:patched"},
		"template changed, profile changed":       {second, edit(stored, "own image"), "main=main:2 agent=agent:2"},
		"manifest changed, profile changed":       {second, edit(manifest, "own image"), "main=main:2 agent=agent:2"},
		"template changed, another profile":       {third, edit(stored, "own image"), "main=main:2 proxy=proxy:1"},
		"template changed, no profile left":       {nil, edit(stored, "own image"), "main=main:2"},
		"container inserted before what was":      {first, edit(stored, "new container"), "new= main= agent=agent:1"},
		"opted out later":                         {nil, edit(stored, "opt out"), "main="},
		"opted out later, with the same manifest": {nil, edit(manifest, "opt out"), "main="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Inject(t.Context(), test.target, test.object, stored)
			expect.NoError(t, err)
			expect.Equal(t, test.want, images(got), "containers")
			again, err := Inject(t.Context(), test.target, got, stored)
			expect.NoError(t, err)
			expect.Equal(t, got, again, "called again")
			if injected := strings.Contains(test.want, "agent") || strings.Contains(test.want, "proxy"); IsInjected(got) != injected {
				t.Errorf("the object has a record: %t, want %t", IsInjected(got), injected)
			}
		})
	}
}

// images are the names and images of the containers of spec.template.
func images(object map[string]any) string {
	var found []string
	all := finder{map[path]*path{}, context.Background().Err}
	for _, at := range all.locate(object, []v1alpha1.InjectionTemplate{podTemplate}) {
		containers, _ := at.pod[containersField].([]any)
		for _, container := range containers {
			found = append(found, nameOf(container, nameKey)+"="+nameOf(container, "image"))
		}
	}
	return strings.Join(found, " ")
}

// An object from before the profile is changed once its pod template is.
func TestInjectExisting(t *testing.T) {
	t.Parallel()
	target := newTarget(t, newProfile(podTemplate))
	stored := from(t, `spec: {replicas: 1, template: {spec: {containers: [{name: main}]}}}`)
	got, err := Inject(t.Context(), target, from(t, `spec: {replicas: 2, template: {spec: {containers: [{name: main}]}}}`), stored)
	expect.NoError(t, err)
	expect.Equal(t, "main=", images(got), "after another field changed")
	got, err = Inject(t.Context(), target, from(t, `spec: {replicas: 1, template: {spec: {containers: [{name: main, image: new}]}}}`), stored)
	expect.NoError(t, err)
	expect.Equal(t, "main=new agent=agent:1", images(got), "after the template changed")
}

// A container that sets a variable itself keeps it also in other templates, and after the profile.
func TestInjectOwnVariables(t *testing.T) {
	t.Parallel()
	profile := newProfile(v1alpha1.InjectionTemplate{Path: "spec.groups[*]", Type: v1alpha1.InjectionPodSpec})
	profile.Spec.Containers, profile.Spec.InitContainers, profile.Spec.Volumes, profile.Spec.VolumeMounts = nil, nil, nil, nil
	text := `spec: {groups: [{containers: [{name: main}, {name: b}]}, {containers: [{name: main, env: [{name: LOGS, value: mine}]}]}]}`
	got, err := Inject(t.Context(), newTarget(t, profile), from(t, text), nil)
	expect.NoError(t, err)
	want := `spec: {groups: [{containers: [{name: main}, {name: b, env: [{name: LOGS, value: /logs}]}]}, {containers: [{name: main, env: [{name: LOGS, value: mine}]}]}]}`
	expect.Equal(t, from(t, want), withoutRecord(t, got), "injected")
	removed, err := Inject(t.Context(), nil, got, nil)
	expect.NoError(t, err)
	delete(removed, "metadata")
	expect.Equal(t, from(t, text), removed, "removed")
}

// counting is a context that counts calls of Err, and ends after most of them.
type counting struct {
	context.Context
	steps, most int
}

func (c *counting) Err() error {
	if c.steps++; c.most > 0 && c.steps > c.most {
		return context.Canceled
	}
	return nil
}

// recorded is an object with n pod specs, and a record of n templates and names. The last pod spec
// has n variables, and two containers of the same name.
func recorded(t *testing.T, n int) map[string]any {
	t.Helper()
	r := &record{Containers: nameSet{}, Env: map[string]nameSet{"main": {}}}
	var groups, env []any
	for i := range n {
		name := fmt.Sprintf("%06d", i)
		if i < injectionpath.MaxTemplates {
			r.Templates = append(r.Templates, v1alpha1.InjectionTemplate{Path: "spec.groups[*]", Type: v1alpha1.InjectionPodSpec})
		}
		r.Containers[name], r.Env["main"][name] = sets.Empty{}, sets.Empty{}
		env = append(env, map[string]any{"name": name})
		groups = append(groups, map[string]any{"containers": []any{map[string]any{"name": "main"}, map[string]any{"name": "main"}}})
	}
	groups[n-1].(map[string]any)["containers"].([]any)[0].(map[string]any)["env"] = env
	object := map[string]any{"spec": map[string]any{"groups": groups}}
	expect.NoError(t, r.write(object))
	return object
}

// The record is the client's to write. The work for it is linear, adds nothing, and ends with the
// request.
func TestInjectIsBounded(t *testing.T) {
	t.Parallel()
	const n = 1000
	steps := func(n int) int {
		ctx := &counting{Context: t.Context()}
		_, err := Inject(ctx, nil, recorded(t, n), nil)
		expect.NoError(t, err)
		return ctx.steps
	}
	once, twice := steps(n), steps(2*n)
	if once < n || twice > 2*once {
		t.Errorf("%d steps for %d items, %d for twice as many", once, n, twice)
	}
	object := recorded(t, n)
	unchanged, err := Inject(t.Context(), nil, object, object)
	expect.NoError(t, err)
	if !reflect.DeepEqual(object, unchanged) {
		t.Error("an update without a change changes the object")
	}
	target := newTarget(t, newProfile(v1alpha1.InjectionTemplate{Path: "spec.groups[*]", Type: v1alpha1.InjectionPodSpec}))
	for name, stored := range map[string]map[string]any{"create": nil, "update": object} {
		for _, target := range []*Target{nil, target} {
			ctx := &counting{Context: t.Context(), most: 10}
			_, err := Inject(ctx, target, object, stored)
			expect.Error(t, err, "context canceled")
			if ctx.steps > 200 {
				t.Errorf("%s: %d steps after the end of the request", name, ctx.steps)
			}
		}
	}
	large := recorded(t, n)
	groups := large["spec"].(map[string]any)["groups"].([]any)
	large["spec"].(map[string]any)["groups"] = slices.Repeat(groups[:1], 20*n)
	_, err = Inject(t.Context(), target, runtime.DeepCopyJSON(large), nil)
	expect.Error(t, err, `spec.groups[0]: Forbidden: InjectionProfile "agent" would add 140000 parts`)
}
