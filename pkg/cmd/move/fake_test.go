// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	group   = "example.com"
	widgets = "widgets.example.com"
	gadgets = "gadgets.example.com"
)

// noon is the current time of the tests.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// fixture is a main cluster with annex.
type fixture struct {
	report      *diagnose.Report
	definitions []string
	annex       []runtime.Object
	// routes are the APIServices of the main cluster.
	routes []runtime.Object
	// status is set on a Migration when it is created.
	status hostingv1alpha1.MigrationStatus
	// denied are the rights that annex never gets, as "<verb> <resource>".
	denied string
	// interactive is set if standard input is a terminal.
	interactive bool
	typed       string
	// mainRevision and annexRevision are the resource versions of lists.
	mainRevision, annexRevision string

	session *session
	kube    *fake.Clientset
	hosting *annexfake.Clientset
	routing *aggregatorfake.Clientset
	meta    *metadatafake.FakeMetadataClient
	out     *bytes.Buffer
	saved   []string
	// probe is the error of a dry run of a creation.
	probe  error
	probed []string
	// kubeObjects are objects of the main cluster, and dependants objects that belong to one of the group.
	kubeObjects []runtime.Object
	dependants  []runtime.Object
}

// reportOf returns a survey of widgets with objects, and gadgets without.
func reportOf(verdict diagnose.Verdict, objects int64, reasons ...string) *diagnose.Report {
	size := objects * 1000
	return &diagnose.Report{Groups: []*diagnose.Group{{
		Name: group, Usage: diagnose.Usage{Objects: &objects, Bytes: &size}, Move: diagnose.Move{Verdict: verdict, Reasons: reasons},
		Resources: []*diagnose.Resource{
			{Name: "gadgets", Scope: "Cluster", Versions: []string{"v1"}, StorageVersion: "v1", Usage: diagnose.Usage{Objects: new(int64), Bytes: new(int64)}},
			{Name: "widgets", Scope: "Namespaced", Versions: []string{"v1", "v2"}, StorageVersion: "v1", ConversionWebhook: "ns/converter", Usage: diagnose.Usage{Objects: &objects, Bytes: &size}},
		},
	}}}
}

// completed is the status of a Migration that copied 3 widgets.
func completed() hostingv1alpha1.MigrationStatus {
	return hostingv1alpha1.MigrationStatus{
		Phase: hostingv1alpha1.MigrationCompleted, CompletionTime: &metav1.Time{Time: noon}, CopiedObjects: 3,
		Resources: []hostingv1alpha1.MigrationResourceStatus{{Name: widgets, Objects: 3, CopiedObjects: 3, CopiedBytes: 3000}, {Name: gadgets}},
	}
}

func ended(phase hostingv1alpha1.MigrationPhase, reason, message string) hostingv1alpha1.MigrationStatus {
	return hostingv1alpha1.MigrationStatus{Phase: phase, Conditions: []metav1.Condition{
		{Type: hostingv1alpha1.MigrationComplete, Status: metav1.ConditionFalse, Reason: reason, Message: message},
	}}
}

func migration(name string, operation hostingv1alpha1.MigrationOperation, status hostingv1alpha1.MigrationStatus) *hostingv1alpha1.Migration {
	return &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hostingv1alpha1.MigrationSpec{Group: group, Operation: operation}, Status: status,
	}
}

func hostedResource(name string, objects int64, published metav1.ConditionStatus) *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "default"},
		Status: hostingv1alpha1.HostedResourceStatus{Objects: objects, Bytes: objects * 1024, Conditions: []metav1.Condition{
			{Type: hostingv1alpha1.HostedResourcePublished, Status: published, Reason: "x", Message: "not routed yet"},
		}},
	}
}

// inAnnex are the resources of a group that annex serves.
func inAnnex() []runtime.Object {
	return []runtime.Object{hostedResource(widgets, 4, metav1.ConditionTrue), hostedResource(gadgets, 0, metav1.ConditionTrue)}
}

func store(name string) *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: hostingv1alpha1.StoreStatus{Conditions: []metav1.Condition{
		{Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionTrue}, {Type: hostingv1alpha1.StoreUnderPressure, Status: metav1.ConditionFalse},
	}}}
}

// metadataOf returns the metadata of an object.
func metadataOf(apiVersion, kind, namespace, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners},
	}
}

// metadataFrom returns the metadata of an object of the main cluster.
func metadataFrom(t *testing.T, object runtime.Object) *metav1.PartialObjectMetadata {
	t.Helper()
	kinds, _, err := kubernetesscheme.Scheme.ObjectKinds(object)
	expect.NoError(t, err)
	of, err := meta.Accessor(object)
	expect.NoError(t, err)
	found := metadataOf(kinds[0].GroupVersion().String(), kinds[0].Kind, of.GetNamespace(), of.GetName())
	found.Labels = of.GetLabels()
	return found
}

// start makes the clients. The first Migration that is created has f.status at once.
func (f *fixture) start(t *testing.T) *session {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	expect.NoError(t, metav1.AddMetaToScheme(scheme))
	owner := metav1.OwnerReference{APIVersion: group + "/v1", Kind: "Widget", Name: "a"}
	objects := []runtime.Object{
		metadataOf("v1", "Pod", "ns", "free"), metadataOf("v1", "ConfigMap", "ns", "dependant", owner), metadataOf("apps/v1", "Deployment", "ns", "dependant", owner),
	}
	objects = append(objects, f.dependants...)
	for _, name := range append(f.definitions, "widgets.other.example.com") {
		objects = append(objects, metadataOf("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name))
	}
	for _, object := range f.kubeObjects {
		objects = append(objects, metadataFrom(t, object))
	}
	f.meta = metadatafake.NewSimpleMetadataClient(scheme, objects...)
	f.kube = fake.NewClientset(append(f.kubeObjects, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: groupsBinding}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "annex-system", Name: "annex"}},
	})...)
	f.routing = aggregatorfake.NewClientset(f.routes...)
	f.meta.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deletion := action.(clienttesting.DeleteAction)
		from := f.kube.Tracker()
		if deletion.GetResource().Resource == "apiservices" {
			from = f.routing.Tracker()
		}
		err := from.Delete(deletion.GetResource(), deletion.GetNamespace(), deletion.GetName())
		return true, nil, err
	})
	for resource, revision := range map[string]string{"namespaces": f.mainRevision, "widgets": f.annexRevision} {
		f.meta.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: cmp.Or(revision, "1")}}, nil
		})
	}
	changeable := metav1.Verbs{"list", "patch"}
	f.kube.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Verbs: changeable}, {Name: "configmaps", Kind: "ConfigMap", Verbs: changeable}, {Name: "secrets", Kind: "Secret", Verbs: changeable}, {Name: "bindings", Kind: "Binding", Verbs: metav1.Verbs{"create"}}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment", Verbs: changeable}}},
		{GroupVersion: group + "/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: changeable}}},
	}
	f.kube.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		of := review.Spec.ResourceAttributes
		review.Status.Allowed = of.Verb+" "+of.Resource != f.denied && review.Spec.User == "system:serviceaccount:annex-system:annex"
		return true, review, nil
	})
	f.hosting = annexfake.NewClientset(f.annex...)
	f.hosting.PrependReactor("create", "migrations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created := action.(clienttesting.CreateAction).GetObject().(*hostingv1alpha1.Migration).DeepCopy()
		created.Name, created.UID, created.Status = created.GenerateName+"x", "1", f.status
		return true, created, f.hosting.Tracker().Create(hostingv1alpha1.SchemeGroupVersion.WithResource("migrations"), created, "")
	})
	f.out = &bytes.Buffer{}
	f.session = &session{
		in: bufio.NewReader(strings.NewReader(f.typed)), interactive: f.interactive, out: f.out, errOut: f.out, program: "kubectl annex", group: group, server: "https://main",
		Clients: &login.Clients{Kube: f.kube, Metadata: f.meta, APIServices: f.routing.ApiregistrationV1().APIServices(), Annex: f.hosting},
		survey:  func(context.Context) (*diagnose.Report, error) { return f.report, nil },
		probe: func(_ context.Context, resource schema.GroupVersionResource) error {
			f.probed = append(f.probed, resource.Resource)
			return f.probe
		},
		save: func(_ context.Context, resource, path string) error {
			f.saved = append(f.saved, resource+" "+path)
			return nil
		},
		now: func() time.Time { return noon }, pollInterval: time.Millisecond, rightsTimeout: 50 * time.Millisecond, settleTimeout: time.Minute,
	}
	return f.session
}

// created returns the spec of the Migration that was created, or nil.
func (f *fixture) created(t *testing.T) *hostingv1alpha1.MigrationSpec {
	t.Helper()
	for _, action := range f.hosting.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok && action.GetResource().Resource == "migrations" {
			return &create.GetObject().(*hostingv1alpha1.Migration).Spec
		}
	}
	return nil
}

// granted returns the rules of the group's role, or nil.
func (f *fixture) granted(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	role, err := f.kube.RbacV1().ClusterRoles().Get(t.Context(), "annex-hosted-example.com", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	expect.Equal(t, map[string]string{hostingv1alpha1.AggregateLabel: "true"}, role.Labels)
	return role.Rules
}

// changed reports whether anything was written.
func (f *fixture) changed() bool {
	for _, actions := range [][]clienttesting.Action{f.kube.Actions(), f.hosting.Actions(), f.meta.Actions(), f.routing.Actions()} {
		for _, action := range actions {
			reads := action.GetVerb() == "get" || action.GetVerb() == "list" || action.GetVerb() == "watch" || action.GetResource().Resource == "subjectaccessreviews"
			if !reads {
				return true
			}
		}
	}
	return false
}

// fitsTerminal fails if a table or sentence is wider than a terminal. Names and commands may be.
func (f *fixture) fitsTerminal(t *testing.T) {
	t.Helper()
	for line := range strings.SplitSeq(f.out.String(), "\n") {
		if len(line) > columns && strings.Count(strings.TrimSpace(line), " ") > 4 {
			t.Errorf("a line is wider than %d columns: %q", columns, line)
		}
	}
}
