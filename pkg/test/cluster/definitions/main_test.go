// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// patience is how long a wait may take on a busy machine.
const patience = time.Minute

// mainCluster is shared by all tests: each has groups of its own.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	// Annex's rights on a group are those of an aggregated role.
	options := maincluster.Options{Controllers: []string{"clusterrole-aggregation-controller"}}
	os.Exit(maincluster.RunTests(m, options, func(started *maincluster.Cluster) { mainCluster = started }))
}

// fixture is a main cluster and the annex behind it, for one group.
type fixture struct {
	*testing.T
	group           string
	annex           *annextest.Annex
	mainDefinitions apiextensionsclient.Interface
	mainObjects     dynamic.Interface
	mainAPIServices aggregatorclient.Interface

	annexDefinitions apiextensionsclient.Interface
	annexObjects     dynamic.Interface
	annexHosting     hostingclient.Interface
}

// newFixture makes clients, and lets annex see the objects of a group.
func newFixture(t *testing.T, annex *annextest.Annex, group string) *fixture {
	t.Helper()
	w := unallowed(t, annex, group)
	w.no(annex.AllowGroup(t.Context(), group))
	return w
}

// unallowed is a fixture in which annex may not see the objects of the group.
func unallowed(t *testing.T, annex *annextest.Annex, group string) *fixture {
	t.Helper()
	main, own := restclient.CopyConfig(mainCluster.Config), restclient.CopyConfig(annex.AnnexConfig)
	main.QPS, own.QPS = -1, -1
	return &fixture{
		T: t, group: group, annex: annex,
		mainDefinitions: apiextensionsclient.NewForConfigOrDie(main), mainObjects: dynamic.NewForConfigOrDie(main),
		mainAPIServices:  aggregatorclient.NewForConfigOrDie(main),
		annexDefinitions: apiextensionsclient.NewForConfigOrDie(own), annexObjects: dynamic.NewForConfigOrDie(own),
		annexHosting: hostingclient.NewForConfigOrDie(own),
	}
}

// no ends the test on an error.
func (w *fixture) no(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// crd is a definition of the group with some versions, the first of which is stored.
func (w *fixture) crd(plural string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
	made := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + w.group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: w.group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Scope: apiextensionsv1.NamespaceScoped,
		},
	}
	for i, version := range versions {
		made.Spec.Versions = append(made.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type:        "object",
				Description: "A " + kind + " in version " + version + ".",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"size": {Type: "integer", Description: "How large it is.", Maximum: new(float64(9))},
					}},
				},
			}},
		})
	}
	return made
}

func hosted(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	metav1.SetMetaDataLabel(&crd.ObjectMeta, hostingv1alpha1.HostedLabel, "true")
	return crd
}

// define makes definitions in the main cluster.
func (w *fixture) define(crds ...*apiextensionsv1.CustomResourceDefinition) {
	w.Helper()
	for _, crd := range crds {
		_, err := w.mainDefinitions.ApiextensionsV1().CustomResourceDefinitions().Create(w.Context(), crd, metav1.CreateOptions{})
		w.no(err)
	}
}

// apply writes a definition in the main cluster as `kubectl apply --server-side` does.
func (w *fixture) apply(crd *apiextensionsv1.CustomResourceDefinition) {
	w.Helper()
	crd = crd.DeepCopy()
	crd.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	content, err := json.Marshal(crd)
	w.no(err)
	_, err = w.mainDefinitions.ApiextensionsV1().CustomResourceDefinitions().Patch(w.Context(), crd.Name, types.ApplyPatchType, content,
		metav1.PatchOptions{FieldManager: "chart", Force: new(true)})
	w.no(err)
}

// patch merges JSON into a definition of the main cluster.
func (w *fixture) patch(name, patch string, subresources ...string) {
	w.Helper()
	_, err := w.mainDefinitions.ApiextensionsV1().CustomResourceDefinitions().Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	w.no(err)
}

func (w *fixture) label(name string) {
	w.Helper()
	w.patch(name, `{"metadata":{"labels":{"annex.dev/hosted":"true"}}}`)
}

// published waits until the main cluster sends requests for a version to annex.
func (w *fixture) published(version string) {
	w.Helper()
	if err := w.annex.WaitPublished(w.Context(), w.group, version); err != nil {
		w.Fatalf("%v\n%s", err, w.everything())
	}
}

// asksAnnex waits until the main cluster does what published says, which it does a
// moment later: its lists are then at a version of annex.
func (w *fixture) asksAnnex(plural, version string) {
	w.Helper()
	listed := func(ctx context.Context, client dynamic.Interface) uint64 {
		list, err := w.in(client, plural, version).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0
		}
		at, _ := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
		return at
	}
	w.eventually("the main cluster asks annex for "+plural, func(ctx context.Context) (bool, string) {
		before, through, after := listed(ctx, w.annexObjects), listed(ctx, w.mainObjects), listed(ctx, w.annexObjects)
		return before > 0 && before <= through && through <= after, fmt.Sprintf("annex is at %d to %d, the main cluster at %d", before, after, through)
	})
}

// isMains fails if an APIService is not one that kube-apiserver keeps.
func (w *fixture) isMains(version string) {
	w.Helper()
	found, err := w.mainAPIServices.ApiregistrationV1().APIServices().Get(w.Context(), version+"."+w.group, metav1.GetOptions{})
	w.no(err)
	if found.Spec.Service != nil || found.Labels["kube-aggregator.kubernetes.io/automanaged"] != "true" || found.Labels[hostingv1alpha1.PublishedByLabel] != "" {
		w.Errorf("APIService %s has labels %v and service %v, want it to be the main cluster's own", found.Name, found.Labels, found.Spec.Service)
	}
}

// says waits until a HostedResource says something on how its definition is
// followed, and returns the message.
func (w *fixture) says(name string, status metav1.ConditionStatus, reason string, words ...string) string {
	w.Helper()
	var message string
	w.eventually(fmt.Sprintf("%s says %s %s %q", name, status, reason, words), func(ctx context.Context) (bool, string) {
		resource, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		condition := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
		if condition == nil {
			return false, "nothing"
		}
		message = condition.Message
		for _, word := range words {
			if !strings.Contains(message, word) {
				return false, message
			}
		}
		return condition.Status == status && condition.Reason == reason, fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, message)
	})
	return message
}

func (w *fixture) followed(name string) {
	w.Helper()
	w.says(name, metav1.ConditionTrue, "Synced")
}

// everything is what annex says on the group, for a test that fails.
func (w *fixture) everything() string {
	resources, err := w.annexHosting.HostingV1alpha1().HostedResources().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, resource := range resources.Items {
		if strings.HasSuffix(resource.Name, "."+w.group) {
			fmt.Fprintf(&all, "%s: %+v\n", resource.Name, resource.Status.Conditions)
		}
	}
	return all.String()
}

// object is one of the group.
func (w *fixture) object(plural, version, name string) *unstructured.Unstructured {
	kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": w.group + "/" + version, "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault},
		"spec":     map[string]any{"size": int64(3)},
	}}
}

// in are the objects of a resource, seen by some client.
func (w *fixture) in(client dynamic.Interface, plural, version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: w.group, Version: version, Resource: plural}).Namespace(metav1.NamespaceDefault)
}

// create makes an object through the main cluster. A definition that was just
// switched may be refused for a moment.
func (w *fixture) create(plural, version, name string) {
	w.Helper()
	w.eventually("creating "+plural+" "+name, func(ctx context.Context) (bool, string) {
		_, err := w.in(w.mainObjects, plural, version).Create(ctx, w.object(plural, version, name), metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// has fails unless an object is there.
func (w *fixture) has(client dynamic.Interface, plural, version, name string) {
	w.Helper()
	w.eventually("getting "+plural+" "+name, func(ctx context.Context) (bool, string) {
		_, err := w.in(client, plural, version).Get(ctx, name, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// stored fails unless the main cluster's etcd holds so many objects of the group.
func (w *fixture) stored(want int) {
	w.Helper()
	keys, err := mainCluster.EtcdKeys(w.Context(), "/registry/"+w.group+"/")
	w.no(err)
	if len(keys) != want {
		w.Errorf("the main cluster's etcd holds %d objects of the group, want %d: %q", len(keys), want, keys)
	}
}

// slipIn puts an object into the main cluster's etcd.
func (w *fixture) slipIn(plural, version, name string) {
	w.Helper()
	object := w.object(plural, version, name)
	object.SetUID(types.UID("6b1c1f0e-0000-4000-8000-" + fmt.Sprintf("%012x", time.Now().UnixNano()&0xffffffffffff)))
	object.SetCreationTimestamp(metav1.Now())
	content, err := object.MarshalJSON()
	w.no(err)
	w.no(mainCluster.PutEtcdKey(w.Context(), "/registry/"+w.group+"/"+plural+"/default/"+name, string(content)))
}

// eventually polls until done and fails with what was last seen.
func (w *fixture) eventually(what string, check func(ctx context.Context) (done bool, saw string)) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		done, saw := check(w.Context())
		if done {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %s; last seen: %s\n%s", what, patience, saw, w.everything())
		}
		select {
		case <-w.Context().Done():
			w.Fatalf("%s: the test ended; last seen: %s", what, saw)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
