// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testDefinitions runs each case with its own group, behind one annex.
func testDefinitions(t *testing.T) {
	annex := startAnnex(t)
	for name, test := range map[string]struct {
		group string
		run   func(*fixture)
	}{
		"labelled":                   {"labelled.example.com", labelled},
		"labelled when created":      {"new.example.com", labelledAtOnce},
		"objects exist":              {"objects.example.com", objectsExist},
		"mixed group":                {"mixed.example.com", mixedGroup},
		"upgraded by a chart":        {"upgraded.example.com", upgraded},
		"edit refused by annex":      {"refused.example.com", refused},
		"label removed":              {"unlabelled.example.com", labelRemoved},
		"deleted in main":            {"deleted.example.com", deletedInMain},
		"one of two deleted in main": {"half.example.com", oneOfTwoDeleted},
		"deleted with finalizers":    {"stuck.example.com", deletedWithFinalizers},
		"deleted with policy Keep":   {"kept.example.com", deletedAndKept},
		"deleted without its label":  {"released.example.com", deletedWithoutLabel},
		"missing in main":            {"missing.example.com", missingInMain},
		"restored older deletion":    {"older.example.com", olderDeletion},
		"deleted in annex":           {"remade.example.com", deletedInAnnex},
		"unlabelled CRD joins":       {"joined.example.com", unlabelledJoins},
		"defined in annex by a user": {"defined.example.com", definedInAnnex},
		"forged":                     {"forged.example.com", forged},
		"added to a hosted group":    {"added.example.com", added},
		"restored from a backup":     {"restored.example.com", restored},
		"on another Store":           {"far.example.com", onAnotherStore},
		"of a compiled-in group":     {"hosting.annex.dev", ofACompiledInGroup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.run(newFixture(t, annex, test.group))
		})
	}
	t.Run("not allowed to list objects", func(t *testing.T) {
		t.Parallel()
		notAllowed(newFixtureWithoutAccess(t, annex, "forbidden.example.com"))
	})
	t.Run("cert-manager", func(t *testing.T) {
		t.Parallel()
		certManager(t, annex)
	})
}

// labelled: an existing CRD gets the label, and annex serves exactly what the main
// cluster served.
func labelled(f *fixture) {
	f.createInMain(f.newCRD("widgets", "v1"))
	before := f.mainDocument("v1", "widgets")

	f.label("widgets." + f.group)
	f.waitPublished("v1")
	f.createObject("widgets", "v1", "one")

	f.waitForObject(f.annexObjects, "widgets", "v1", "one")
	f.expectInMainEtcd(0)
	f.waitForSync("widgets." + f.group)
	f.expectSameDocuments("v1", before, "widgets")
	resource := expect.Get(f, f.hostedResources, "widgets."+f.group)
	if resource.Status.Phase != hostingv1alpha1.HostedResourceHosted {
		f.Errorf("phase %s, want Hosted", resource.Status.Phase)
	}
	expect.Eventually(f, f.hostedResources, resource.Name, "the HostedResource is ready", func(resource *hostingv1alpha1.HostedResource) bool {
		return meta.IsStatusConditionTrue(resource.Status.Conditions, hostingv1alpha1.HostedResourceReady)
	})
}

func labelledAtOnce(f *fixture) {
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	// Kubernetes delays the first create after a new CRD by two seconds. Reads work at once.
	_, err := f.objects(f.mainObjects, "widgets", "v1").List(f.Context(), metav1.ListOptions{})
	expect.NoError(f, err)
	f.waitForSync("widgets." + f.group)
	f.createObject("widgets", "v1", "one")
	f.expectInMainEtcd(0)
}

func objectsExist(f *fixture) {
	name := "widgets." + f.group
	f.createInMain(f.newCRD("widgets", "v1"))
	f.createObject("widgets", "v1", "old")
	f.label(name)
	f.waitForCondition(name, metav1.ConditionFalse, "ObjectsExist", `"default/old"`)
	f.expectServedByMain("v1")
	f.expectNotInAnnex(name)
	f.waitForObject(f.mainObjects, "widgets", "v1", "old")
	f.expectInMainEtcd(1)

	expect.NoError(f, f.objects(f.mainObjects, "widgets", "v1").Delete(f.Context(), "old", metav1.DeleteOptions{}))
	f.waitPublished("v1")
	f.waitForSync(name)
}

func mixedGroup(f *fixture) {
	widgets, gadgets := "widgets."+f.group, "gadgets."+f.group
	f.createInMain(f.newCRD("gadgets", "v1"), hosted(f.newCRD("widgets", "v1")))
	f.waitForCondition(widgets, metav1.ConditionFalse, "GroupIncomplete", "kubectl label crd "+gadgets+" annex.dev/hosted=true")
	f.expectServedByMain("v1")
	f.expectNotInAnnex(widgets)
	if _, err := f.hostedResources.Get(f.Context(), gadgets, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		f.Errorf("a HostedResource of an unlabelled CRD: %v", err)
	}

	f.label(gadgets)
	f.waitPublished("v1")
	f.waitForSync(widgets)
	f.waitForSync(gadgets)
	f.createObject("gadgets", "v1", "one")
	f.expectInMainEtcd(0)

	// A CRD that loses its label stays with annex if its group does.
	f.patchInMain(gadgets, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	f.waitForCondition(gadgets, metav1.ConditionFalse, "NotLabelled")
	f.waitForSync(widgets)
	f.waitForObject(f.mainObjects, "gadgets", "v1", "one")
}

func upgraded(f *fixture) {
	name := "widgets." + f.group
	f.applyInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.createObject("widgets", "v1", "one")

	newer := hosted(f.newCRD("widgets", "v2", "v1"))
	newer.Labels["app.kubernetes.io/version"] = "2.0"
	newer.Spec.Names.Categories = []string{"all"}
	newer.Spec.Names.ShortNames = []string{"wi"}
	f.applyInMain(newer)
	f.waitPublished("v2")
	f.waitForObject(f.mainObjects, "widgets", "v2", "one")
	f.createObject("widgets", "v2", "two")
	f.waitForObject(f.mainObjects, "widgets", "v1", "two")
	f.expectInMainEtcd(0)
	f.waitForSync(name)
	f.expectSameDocuments("v2", f.mainDocument("v2", "widgets"), "widgets")

	own := expect.Get(f, f.annexCRDs, name)
	if own.Labels["app.kubernetes.io/version"] != "2.0" || len(own.Status.AcceptedNames.ShortNames) != 1 {
		f.Errorf("annex's definition has labels %v and short names %v", own.Labels, own.Status.AcceptedNames.ShortNames)
	}
}

// refused: the main cluster, which stores no objects, can drop a version that annex has
// stored objects in.
func refused(f *fixture) {
	name := "widgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1", "v2")))
	f.waitPublished("v1")
	f.waitPublished("v2")
	f.createObject("widgets", "v1", "one")

	f.applyInMain(hosted(f.newCRD("widgets", "v2", "v1")))
	f.waitForSync(name)
	f.patchInMain(name, `{"status":{"storedVersions":["v2"]}}`, "status")
	f.patchInMain(name, fmt.Sprintf(`{"spec":{"versions":%s}}`, f.versionsJSON("widgets", "v2")))
	f.waitForCondition(name, metav1.ConditionFalse, "Rejected", "storedVersions")
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	f.waitForObject(f.mainObjects, "widgets", "v2", "one")

	f.patchInMain(name, fmt.Sprintf(`{"spec":{"versions":%s}}`, f.versionsJSON("widgets", "v2", "v1")))
	f.waitForSync(name)
}

func labelRemoved(f *fixture) {
	name := "widgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.createObject("widgets", "v1", "one")
	f.patchInMain(name, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	f.waitForCondition(name, metav1.ConditionFalse, "NotLabelled", "kubectl label crd "+name)
	f.waitPublished("v1")
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")

	f.label(name)
	f.waitForSync(name)
}

func deletedInAnnex(f *fixture) {
	name := "widgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.waitForSync(name)
	first := expect.Get(f, f.annexCRDs, name)
	expect.Delete(f, f.annexCRDs, name)
	expect.Eventually(f, f.annexCRDs, name, "annex creates the CRD again", func(again *apiextensionsv1.CustomResourceDefinition) bool {
		return again.UID != first.UID
	})
	f.waitPublished("v1")
	f.waitForSync(name)
	f.createObject("widgets", "v1", "one")
	f.expectInMainEtcd(0)
}

func unlabelledJoins(f *fixture) {
	gadgets := "gadgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.createInMain(f.newCRD("gadgets", "v1"))
	f.waitForCondition(gadgets, metav1.ConditionFalse, "NotLabelled", "kubectl label crd "+gadgets)
	f.label(gadgets)
	f.waitForSync(gadgets)
	f.createObject("gadgets", "v1", "one")
	f.expectInMainEtcd(0)
}

func definedInAnnex(f *fixture) {
	name := "widgets." + f.group
	expect.Create(f, f.annexCRDs, f.newCRD("widgets", "v1"))
	f.waitPublished("v1")
	f.createObject("widgets", "v1", "one")
	newer := hosted(f.newCRD("widgets", "v1"))
	newer.Spec.Names.ShortNames = []string{"wi"}
	f.createInMain(newer)
	f.waitForCondition(name, metav1.ConditionFalse, "DefinedInAnnex", "kubectl annotate crd "+name+" annex.dev/definition-from=main")
	own := expect.Get(f, f.annexCRDs, name)
	if len(own.Spec.Names.ShortNames) > 0 {
		f.Error("annex's CRD was overwritten")
	}

	expect.Patch(f, f.annexCRDs, name, `{"metadata":{"annotations":{"annex.dev/definition-from":"main"}}}`)
	f.waitForSync(name)
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
}

// added: the main cluster stores no objects of a hosted group, whatever is added to its definitions. After the
// last definition was deleted nothing is left of that.
func added(f *fixture) {
	widgets, gadgets := "widgets."+f.group, "gadgets."+f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.waitForMigration()
	f.createInMain(f.newCRD("gadgets", "v2"))
	poll.UntilDone(f, "the main cluster denies objects of a definition that annex does not follow", func() (bool, string) {
		_, err := f.objects(f.mainObjects, "gadgets", "v2").Create(f.Context(), f.newObject("gadgets", "v2", "early"), metav1.CreateOptions{})
		if err == nil {
			f.Fatal("an object was created")
		}
		return strings.Contains(err.Error(), "is served by annex"), err.Error()
	})
	f.label(gadgets)
	f.waitPublished("v2")
	f.waitForSync(gadgets)
	f.createObject("gadgets", "v2", "one")
	f.expectInMainEtcd(0)

	expect.Delete(f, f.mainCRDs, widgets)
	expect.Delete(f, f.mainCRDs, gadgets)
	f.waitForDeletionInMain(widgets)
	f.waitForDeletionInMain(gadgets)
	f.createInMain(f.newCRD("widgets", "v1"))
	f.createObject("widgets", "v1", "one")
	f.expectInMainEtcd(1)
}

// waitForMigration waits until the Migration that the labels order has completed.
func (f *fixture) waitForMigration() {
	f.Helper()
	expect.Eventually(f, f.migrations, f.group+"-hosted", "the Migration has completed", func(m *hostingv1alpha1.Migration) bool {
		return m.Status.Phase == hostingv1alpha1.MigrationCompleted
	})
}

func notAllowed(f *fixture) {
	name := "widgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitForCondition(name, metav1.ConditionFalse, "Forbidden", "kubectl annex move "+f.group+" --print-rights | kubectl apply -f -")
	f.expectServedByMain("v1")
	f.expectNotInAnnex(name)
	expect.NoError(f, f.annex.AllowGroup(f.Context(), f.group))
	f.waitPublished("v1")
	f.waitForSync(name)
}

// expectNotInAnnex fails if annex has a CRD.
func (f *fixture) expectNotInAnnex(name string) {
	f.Helper()
	_, err := f.annexCRDs.Get(f.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		f.Errorf("annex has CRD %s: %v", name, err)
	}
}

func (f *fixture) waitForNotFound(what string, get func() error) {
	f.Helper()
	poll.UntilDone(f, what+" is deleted", func() (bool, string) {
		err := get()
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

func (f *fixture) versionsJSON(plural string, versions ...string) string {
	f.Helper()
	content, err := json.Marshal(f.newCRD(plural, versions...).Spec.Versions)
	expect.NoError(f, err)
	return string(content)
}

// restored: a resource whose CRD was deleted in the main cluster is restored through the
// main cluster.
func restored(f *fixture) {
	name := "widgets." + f.group
	definition := hosted(f.newCRD("widgets", "v1"))
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	f.createInMain(definition)
	f.waitPublished("v1")
	f.waitForSync(name)
	f.createObject("widgets", "v1", "one")
	before, err := f.objects(f.mainObjects, "widgets", "v1").Get(f.Context(), "one", metav1.GetOptions{})
	expect.NoError(f, err)
	// Larger than etcd's limit in the main cluster, also when compressed.
	random := make([]byte, 3<<20)
	_, err = rand.Read(random)
	expect.NoError(f, err)
	large := f.newObject("widgets", "v1", "large")
	large.Object["data"] = hex.EncodeToString(random)
	_, err = f.objects(f.mainObjects, "widgets", "v1").Create(f.Context(), large, metav1.CreateOptions{})
	expect.NoError(f, err)
	file := filepath.Join(f.TempDir(), "widgets.backup")
	f.runCommand("backup", "--resource="+name, file)

	expect.Delete(f, f.mainCRDs, name)
	f.waitForDeletionInMain(name)
	f.waitForDeletion("widgets")
	f.runCommand("restore", file)
	f.waitPublished("v1")
	f.waitForSync(name)
	f.expectInMainEtcd(0)
	after, err := f.objects(f.mainObjects, "widgets", "v1").Get(f.Context(), "large", metav1.GetOptions{})
	expect.NoError(f, err)
	if after.Object["data"] != large.Object["data"] {
		f.Error("the large object has changed")
	}
	poll.UntilDone(f, "the object has its UID and a new resource version", func() (bool, string) {
		after, err := f.objects(f.mainObjects, "widgets", "v1").Get(f.Context(), "one", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		same := after.GetUID() == before.GetUID() && after.GetResourceVersion() != before.GetResourceVersion()
		return same, fmt.Sprint(after.Object)
	})
}

// runCommand runs a command of annex with the kubeconfig of the main cluster.
func (f *fixture) runCommand(args ...string) {
	f.Helper()
	var out, errOut bytes.Buffer
	if code := cmd.Execute(append(args, "--kubeconfig="+mainCluster.Kubeconfig), &out, &errOut); code != 0 {
		f.Fatalf("annex %s: exit code %d: %s", strings.Join(args, " "), code, errOut.String())
	}
}
