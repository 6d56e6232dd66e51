// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecarinjection

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var jobs = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "jobs"}

func newProfile(path string) *v1alpha1.InjectionProfile {
	return &v1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: v1alpha1.InjectionProfileSpec{
			Mode:              v1alpha1.InjectionOptOut,
			Targets:           []v1alpha1.InjectionTarget{{Resource: "jobs.example.com", Templates: []v1alpha1.InjectionTemplate{{Path: path, Type: v1alpha1.InjectionPodSpec}}}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
			Containers:        []runtime.RawExtension{{Raw: []byte(`{"name":"agent","image":"agent:1"}`)}},
		},
	}
}

func newDefinition() *apiextensionsv1.CustomResourceDefinition {
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "jobs.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"pod": open},
			}},
		}}},
	}
}

// newPlugin returns a plugin with a profile, a definition, and the namespaces "in" and "out".
func newPlugin(t *testing.T) *Plugin {
	t.Helper()
	kube := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "in", Labels: map[string]string{"inject": "yes"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "out"}},
	)
	namespaces := informers.NewSharedInformerFactory(kube, 0)
	definitions := crdinformers.NewSharedInformerFactory(crdfake.NewClientset(newDefinition()), 0)
	profiles := annexinformers.NewSharedInformerFactory(annexfake.NewClientset(newProfile("pod")), 0)

	plugin := New()
	plugin.SetExternalKubeInformerFactory(namespaces)
	plugin.SetExternalKubeClientSet(kube)
	if err := plugin.ValidateInitialization(); err == nil {
		t.Error("the plugin is valid without profiles")
	}
	sources, err := NewSources(profiles.Hosting().V1alpha1().InjectionProfiles())
	expect.NoError(t, err)
	sources.Initialize(plugin)
	expect.NoError(t, plugin.ValidateInitialization())
	crds := definitions.Apiextensions().V1().CustomResourceDefinitions()
	crds.Informer()
	sources.SetDefinitions(crds, crds)
	namespaces.StartWithContext(t.Context())
	definitions.StartWithContext(t.Context())
	profiles.StartWithContext(t.Context())
	return plugin
}

// job returns an object with a container.
func job(namespace, container string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"pod": map[string]any{"containers": []any{map[string]any{"name": container}}}}}
	object.SetNamespace(namespace)
	object.SetName("a")
	return object
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	plugin := newPlugin(t)
	deleted := job("in", "main")
	deleted.SetDeletionTimestamp(new(metav1.Unix(1, 0)))
	refusing := job("in", "main")
	refusing.SetAnnotations(map[string]string{v1alpha1.InjectAnnotation: "no"})
	other := jobs
	other.Resource = "others"
	for name, test := range map[string]struct {
		object      runtime.Object
		old         runtime.Object
		resource    schema.GroupVersionResource
		subresource string
		injected    bool
		wantErr     string
	}{
		"create":                  {object: job("in", "main"), resource: jobs, injected: true},
		"update of the template":  {object: job("in", "new"), old: job("in", "main"), resource: jobs, injected: true},
		"update of nothing":       {object: job("in", "main"), old: job("in", "main"), resource: jobs},
		"another namespace":       {object: job("out", "main"), resource: jobs},
		"a namespace that is not": {object: job("missing", "main"), resource: jobs, wantErr: `namespaces "missing" not found`},
		"another resource":        {object: job("in", "main"), resource: other},
		"status":                  {object: job("in", "main"), resource: jobs, subresource: "status"},
		"while it is deleted":     {object: deleted, resource: jobs},
		"a typed object":          {object: &corev1.ConfigMap{}, resource: jobs},
		"a name in use":           {object: job("in", "agent"), resource: jobs, wantErr: "pod.containers[0].name: Invalid value"},
		"a bad annotation":        {object: refusing, resource: jobs, wantErr: "metadata.annotations[annex.dev/inject]: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := test.object.DeepCopyObject()
			namespace := ""
			if object, ok := test.object.(*unstructured.Unstructured); ok {
				namespace = object.GetNamespace()
			}
			attributes := admission.NewAttributesRecord(test.object, test.old, jobs.GroupVersion().WithKind("Job"), namespace, "a",
				test.resource, test.subresource, admission.Create, &metav1.CreateOptions{}, false, nil)
			err := plugin.Admit(t.Context(), attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
			expect.ErrorOrNone(t, err, test.wantErr)
			if !test.injected {
				expect.Equal(t, before, test.object, "object")
				return
			}
			list, _, _ := unstructured.NestedSlice(test.object.(*unstructured.Unstructured).Object, "pod", "containers")
			if len(list) != 2 {
				t.Errorf("containers are %v", list)
			}
		})
	}
}

// TestAdmitUndecoded checks which objects have to be decoded.
func TestAdmitUndecoded(t *testing.T) {
	t.Parallel()
	plugin := newPlugin(t)
	other := jobs
	other.Resource = "others"
	injected := map[string]string{v1alpha1.InjectedAnnotation: ""}
	for name, test := range map[string]struct {
		old, annotations map[string]string
		resource         schema.GroupVersionResource
		subresource      string
		want             error
	}{
		"a resource with profiles":    {resource: jobs, want: undecoded.ErrMutates},
		"a resource without profiles": {resource: other, annotations: map[string]string{"a": "b"}},
		"injected":                    {resource: other, old: injected, annotations: injected, want: undecoded.ErrMutates},
		"annotation added":            {resource: other, annotations: injected, want: undecoded.ErrMutates},
		"annotation removed":          {resource: other, old: injected, want: undecoded.ErrMutates},
		"status":                      {resource: jobs, old: injected, annotations: injected, subresource: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := undecoded.NewRequest(nil)
			object := func(annotations map[string]string) *undecoded.Object {
				return request.Object(&metav1.ObjectMeta{Namespace: "in", Name: "a", Annotations: annotations}, nil)
			}
			attributes := admission.NewAttributesRecord(object(test.annotations), object(test.old), jobs.GroupVersion().WithKind("Job"), "in", "a",
				test.resource, test.subresource, admission.Update, &metav1.UpdateOptions{}, false, nil)
			if err := request.Admit(t.Context(), plugin, attributes); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	plugin := newPlugin(t)
	later := newProfile("pod")
	later.Spec.Targets[0].Resource = "later.example.com"
	for name, test := range map[string]struct {
		object, old runtime.Object
		resource    schema.GroupResource
		subresource string
		wantErr     string
	}{
		"fits":                {object: newProfile("pod")},
		"not yet defined":     {object: later},
		"does not fit":        {object: newProfile("pods"), wantErr: "spec.targets[0].templates[0].path: Invalid value"},
		"does not fit before": {object: newProfile("pods"), old: newProfile("pods")},
		"does not fit now":    {object: newProfile("pods"), old: newProfile("pod"), wantErr: "has no pods"},
		"status":              {object: newProfile("pods"), subresource: "status"},
		"another resource":    {object: &corev1.ConfigMap{}, resource: corev1.Resource("configmaps")},
		"an unexpected type":  {object: &corev1.ConfigMap{}, wantErr: "expected an InjectionProfile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.resource.Empty() {
				test.resource = v1alpha1.Resource("injectionprofiles")
			}
			attributes := admission.NewAttributesRecord(test.object, test.old, v1alpha1.SchemeGroupVersion.WithKind("InjectionProfile"), "", "agent",
				test.resource.WithVersion("v1alpha1"), test.subresource, admission.Create, &metav1.CreateOptions{}, false, nil)
			expect.ErrorOrNone(t, plugin.Validate(t.Context(), attributes, nil), test.wantErr)
		})
	}
}
