// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// workloadSchema has a pod template that knows a part of a container, and no env.
const workloadSchema = `
type: object
properties:
  spec:
    type: object
    x-kubernetes-validations: [{rule: "self.template.spec.containers.all(c, !c.image.startsWith('forbidden'))", message: forbidden image}]
    properties:
      replicas: {type: integer}
      template:
        type: object
        properties:
          spec:
            type: object
            properties:
              containers:
                type: array
                maxItems: 3
                items:
                  type: object
                  required: [name, image]
                  properties:
                    name: {type: string}
                    image: {type: string}
                    ports: {type: array, items: {type: object, properties: {containerPort: {type: integer}, protocol: {type: string, default: TCP}}}}
`

const workload = `spec: {replicas: 1, template: {spec: {containers: [{name: main, image: main:1}]}}}`

// inject creates a profile for the Widgets of the namespace, and waits until it is compared with
// their definition.
func (r *resource) inject(t *testing.T, name string, change func(*hostingv1alpha1.InjectionProfileSpec)) *hostingv1alpha1.InjectionProfile {
	t.Helper()
	profile := &hostingv1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace + "-" + name},
		Spec: hostingv1alpha1.InjectionProfileSpec{
			Targets:    []hostingv1alpha1.InjectionTarget{{Resource: r.name, Templates: []hostingv1alpha1.InjectionTemplate{{Path: "spec.template"}}}},
			Containers: []runtime.RawExtension{{Raw: []byte(`{"name":"agent","image":"agent:1","ports":[{"containerPort":80}]}`)}},
		},
	}
	if change != nil {
		change(&profile.Spec)
	}
	profile = expect.Create(t, r.annex.Hosting.HostingV1alpha1().InjectionProfiles(), profile)
	return r.observed(t, profile)
}

// observed waits until the status of a profile is of its generation.
func (r *resource) observed(t *testing.T, profile *hostingv1alpha1.InjectionProfile) *hostingv1alpha1.InjectionProfile {
	t.Helper()
	return expect.Eventually(t, r.annex.Hosting.HostingV1alpha1().InjectionProfiles(), profile.Name, "the profile is compared", func(now *hostingv1alpha1.InjectionProfile) bool {
		return now.Status.ObservedGeneration >= profile.Generation
	})
}

// containers are the names and images of a Widget's containers.
func containers(object *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	var found []string
	for _, item := range list {
		container, _ := item.(map[string]any)
		found = append(found, fmt.Sprintf("%v=%v", container["name"], container["image"]))
	}
	return strings.Join(found, " ")
}

func TestInjection(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, workloadSchema))
	before := widgets.create(t, "v1", "before", workload)
	profile := widgets.inject(t, "agent", nil)
	if !meta.IsStatusConditionTrue(profile.Status.Conditions, hostingv1alpha1.InjectionProfileReady) {
		t.Fatalf("the profile is not ready: %v", profile.Status)
	}

	created := widgets.create(t, "v1", "a", workload)
	expect.Equal(t, "main=main:1 agent=agent:1", containers(created), "created")
	expect.Contains(t, created.GetAnnotations()[hostingv1alpha1.InjectedAnnotation], profile.Name, `"containers":["agent"]`)
	stored := widgets.get(t, "v1", "a")
	expect.Equal(t, created.Object, stored.Object, "what was created")
	list := field(stored, "spec", "template", "spec", "containers").([]any)
	expect.Equal(t, any([]any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}}), list[1].(map[string]any)["ports"], "ports, with the default of the schema")

	again, err := widgets.in("v1").Update(t.Context(), stored, metav1.UpdateOptions{})
	expect.NoError(t, err)
	expect.Equal(t, stored.GetResourceVersion(), again.GetResourceVersion(), "an update without a change writes nothing")
	scaled := widgets.mustPatch(t, "v1", "a", `{"spec":{"replicas":2}}`)
	expect.Equal(t, "main=main:1 agent=agent:1", containers(scaled), "scaled")
	replaced := widgets.mustPatch(t, "v1", "a", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"main:1"}]}}}}`)
	expect.Equal(t, "main=main:1 agent=agent:1", containers(replaced), "replaced by the manifest")
	expect.Equal(t, scaled.GetGeneration(), replaced.GetGeneration(), "the generation, when the manifest did not change")

	applied, err := widgets.in("v1").Apply(t.Context(), "a", widgets.object(t, "v1", "a", workload), metav1.ApplyOptions{FieldManager: "test", Force: true})
	expect.NoError(t, err)
	expect.Equal(t, "main=main:1 agent=agent:1", containers(applied), "applied")

	labeled := widgets.mustPatch(t, "v1", "before", `{"metadata":{"labels":{"a":"b"}}}`)
	expect.Equal(t, containers(before), containers(labeled), "an object from before the profile, with another label")
	changed := widgets.mustPatch(t, "v1", "before", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"main:2"}]}}}}`)
	expect.Equal(t, "main=main:2 agent=agent:1", containers(changed), "an object from before the profile, with another template")

	out := widgets.mustPatch(t, "v1", "a", `{"metadata":{"annotations":{"annex.dev/inject":"false"}}}`)
	expect.Equal(t, "main=main:1", containers(out), "opted out")
	if _, found := out.GetAnnotations()[hostingv1alpha1.InjectedAnnotation]; found {
		t.Error("the object that opted out has the record of an injection")
	}
}

// The first profile by priority, then name, of those that select an object is injected.
func TestInjectionProfilesOfOneResource(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, workloadSchema))
	image := func(name string) []runtime.RawExtension {
		return []runtime.RawExtension{{Raw: []byte(`{"name":"agent","image":"` + name + `"}`)}}
	}
	widgets.inject(t, "b", func(spec *hostingv1alpha1.InjectionProfileSpec) { spec.Containers = image("b") })
	widgets.inject(t, "a", func(spec *hostingv1alpha1.InjectionProfileSpec) { spec.Containers = image("a") })
	widgets.inject(t, "c", func(spec *hostingv1alpha1.InjectionProfileSpec) {
		spec.Containers, spec.Priority = image("c"), 1
		spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": widgets.namespace}}
		spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "c"}}
	})
	widgets.inject(t, "d", func(spec *hostingv1alpha1.InjectionProfileSpec) {
		spec.Containers, spec.Priority = image("d"), 2
		spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "another"}}
	})
	widgets.inject(t, "e", func(spec *hostingv1alpha1.InjectionProfileSpec) {
		spec.Containers, spec.Priority, spec.Mode = image("e"), 3, hostingv1alpha1.InjectionOptIn
	})
	for name, test := range map[string]struct{ metadata, want string }{
		"any":          {`{}`, "a"},
		"labeled":      {`{labels: {app: c}}`, "c"},
		"opted-in":     {`{annotations: {annex.dev/inject: "true"}}`, "e"},
		"opted-out":    {`{annotations: {annex.dev/inject: "false"}}`, ""},
		"in-and-label": {`{annotations: {annex.dev/inject: "true"}, labels: {app: c}}`, "e"},
	} {
		want := "main=main:1"
		if test.want != "" {
			want += " agent=" + test.want
		}
		expect.Equal(t, want, containers(widgets.create(t, "v1", name, "metadata: "+test.metadata+"\n"+workload)), "%s", name)
	}
}

// What cannot be injected is refused or reported, and nothing is stored half-way.
func TestInjectionOfBadInput(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, workloadSchema))
	profile := widgets.inject(t, "agent", nil)
	tenant := a.newUser(t, "tenant-"+widgets.namespace)
	role := a.newClusterRole(t, nil, coreRule("list", "configmaps"), rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{widgets.group}, Resources: []string{"widgets"}})
	a.grant(t, tenant, role.Name, widgets.namespace)
	post := func(metadata, spec string) response {
		body := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"refused"%s},"spec":{"template":{"spec":{"containers":[%s]}}}}`, widgets.group, metadata, spec)
		return a.request(t, http.MethodPost, widgets.path("v1"), body, "Content-Type", "application/json", "Impersonate-User", tenant.name)
	}
	const main = `{"name":"main","image":"main:1"}`
	for name, test := range map[string]struct{ metadata, containers, want string }{
		"name in use":    {"", main + `,{"name":"agent","image":"own"}`, `spec.template.spec.containers[1].name: Invalid value: \"agent\": InjectionProfile \"` + profile.Name},
		"too many":       {"", main + `,{"name":"b","image":"b"},{"name":"c","image":"c"}`, `(the object is valid without what InjectionProfile \"` + profile.Name},
		"bad annotation": {`,"annotations":{"annex.dev/inject":"yes"}`, main, "metadata.annotations[annex.dev/inject]: Unsupported value"},
		"bad record":     {`,"annotations":{"annex.dev/injected":"yes"}`, main, "metadata.annotations[annex.dev/injected]: Invalid value"},
		"large record":   {`,"annotations":{"annex.dev/injected":"{\"templates\":[` + strings.Repeat(`{\"path\":\"spec\",\"type\":\"PodSpec\"},`, 1000) + `{}]}"}`, main, "has more than 16 templates"},
		"invalid itself": {"", `{"name":"main"}`, "spec.template.spec.containers[0].image: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(test.metadata, test.containers)
			got.ExpectText(t, http.StatusUnprocessableEntity, test.want)
			if name == "invalid itself" && strings.Contains(got.String(), "InjectionProfile") {
				t.Errorf("the profile is blamed: %s", got)
			}
		})
	}
	widgets.wantNames(t, "after what was refused")

	profiles := a.Hosting.HostingV1alpha1().InjectionProfiles()
	bad := profile.DeepCopy()
	bad.Spec.Targets[0].Templates[0].Path = "spec.templates"
	_, err := profiles.Update(t.Context(), bad, metav1.UpdateOptions{})
	expect.Error(t, err, "spec.targets[0].templates[0].path", "has no spec.templates")
	bad = profile.DeepCopy()
	bad.Spec.Containers[0].Raw = []byte(`{"name":"agent","image":"agent:1","tty":true}`)
	_, err = profiles.Update(t.Context(), bad, metav1.UpdateOptions{})
	expect.Error(t, err, "spec.containers[0].tty", "would drop it")
	bad = profile.DeepCopy()
	bad.Spec.Containers[0].Raw = []byte(`{"name":"agent","image":"agent:1","unknown":true}`)
	_, err = profiles.Update(t.Context(), bad, metav1.UpdateOptions{})
	expect.Error(t, err, "spec.containers[0]", `unknown field "unknown"`)

	// A rule of the definition that only the injected container breaks.
	forbidden := profile.DeepCopy()
	forbidden.Spec.Containers[0].Raw = []byte(`{"name":"agent","image":"forbidden:1"}`)
	forbidden, err = profiles.Update(t.Context(), forbidden, metav1.UpdateOptions{})
	expect.NoError(t, err)
	widgets.observed(t, forbidden)
	post("", main).ExpectText(t, http.StatusUnprocessableEntity, `forbidden image (the object is valid without what InjectionProfile \"`+profile.Name)
}

// A profile may be created before the definition of its target. One that does not fit any more is
// not injected; the client is warned.
func TestInjectionFollowsDefinition(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, workloadSchema)
	widgets := &resource{annex: a, name: crd.Name, group: crd.Spec.Group, namespace: a.newNamespace(t)}
	profile := widgets.inject(t, "early", nil)
	profiles := a.Hosting.HostingV1alpha1().InjectionProfiles()
	reason := func(want string) {
		t.Helper()
		expect.Eventually(t, profiles, profile.Name, "the reason is "+want, func(now *hostingv1alpha1.InjectionProfile) bool {
			ready := meta.FindStatusCondition(now.Status.Conditions, hostingv1alpha1.InjectionProfileReady)
			return ready != nil && ready.Reason == want
		})
	}
	reason("DefinitionMissing")
	a.createCRD(t, crd)
	reason("Fits")
	expect.Equal(t, "main=main:1 agent=agent:1", containers(widgets.create(t, "v1", "a", workload)), "with the definition")

	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = parseSchema(t, strings.ReplaceAll(workloadSchema, "ports:", "other:"))
	})
	reason("DoesNotFit")
	body := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"template":{"spec":{"containers":[{"name":"main","image":"main:1"}]}}}}`, widgets.group)
	got := a.request(t, http.MethodPost, widgets.path("v1"), body, "Content-Type", "application/json")
	got.Expect(t, http.StatusCreated)
	expect.Contains(t, strings.Join(got.Header.Values("Warning"), "\n"), "is not injected", "spec.containers[0].ports")
	expect.Equal(t, "main=main:1", containers(widgets.get(t, "v1", "b")), "with a definition that the profile does not fit")
	poll.UntilDone(t, "there is an event", func() (bool, string) {
		events, err := a.Kube.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=DoesNotFit,regarding.name=" + profile.Name})
		expect.NoError(t, err)
		return len(events.Items) > 0, "none"
	})
	_, err := profiles.Patch(t.Context(), profile.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	expect.NoError(t, err, "label a profile that does not fit")
}

// Deletion and finalizers are not hindered by profiles.
func TestInjectionAndDeletion(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, workloadSchema))
	widgets.create(t, "v1", "a", "metadata: {finalizers: [example.com/wait]}\n"+workload)
	widgets.inject(t, "agent", nil)
	widgets.delete(t, "a")
	got := widgets.mustPatch(t, "v1", "a", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"main:2"}]}}}}`)
	expect.Equal(t, "main=main:2", containers(got), "while it is deleted")
	widgets.mustPatch(t, "v1", "a", `{"metadata":{"finalizers":null}}`)
	widgets.wantNames(t, "after the finalizer is removed")
}

// To write profiles is to run containers in any namespace, so no role grants it but cluster-admin.
func (m *attacker) testInjectionProfiles(t *testing.T) {
	m.send(t, http.MethodGet, hostingPath+"injectionprofiles", "").Expect(t, http.StatusOK, "read with annex:hosting-view")
	body := `{"apiVersion":"hosting.annex.dev/v1alpha1","kind":"InjectionProfile","metadata":{"name":"x"}}`
	m.expectRefused(t, http.StatusForbidden, http.MethodPost, hostingPath+"injectionprofiles", body, "Content-Type", "application/json")
	m.expectRefused(t, http.StatusForbidden, http.MethodDelete, hostingPath+"injectionprofiles/x", "")
}
