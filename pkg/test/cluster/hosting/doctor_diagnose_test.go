// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/crgen"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	openReports   = "openreports.io"
	policyReports = "wgpolicyk8s.io"
)

// diagnosed creates the report CRDs of OpenReports and Kyverno, and some with the names of Tekton's,
// Argo's and Trivy's. `annex diagnose` counts their objects, and its commands move a group.
func diagnosed(t *testing.T, annex *annextest.Annex) {
	converted := crd("taskruns.tekton.dev", "v1", "v1beta1")
	converted.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "tekton-pipelines", Name: "tekton-pipelines-webhook"}},
		},
	}
	all := []*apiextensionsv1.CustomResourceDefinition{converted, crd("workflows.argoproj.io", "v1alpha1"), crd("vulnerabilityreports.aquasecurity.github.io", "v1alpha1")}
	for _, source := range crds.Sources() {
		if source.Name == "openreports" || source.Name == "kyverno" {
			manifests, err := crds.Load(t.Context(), source)
			expect.NoError(t, err)
			for _, manifest := range manifests {
				if group := manifest.CRD.Spec.Group; group == openReports || group == policyReports {
					all = append(all, manifest.CRD)
				}
			}
		}
	}
	for _, crd := range all {
		expect.Create(t, definitions(t, mainCluster.Config), crd)
	}
	for _, crd := range all {
		expect.Eventually(t, definitions(t, mainCluster.Config), crd.Name, crd.Name+" is established", func(found *apiextensionsv1.CustomResourceDefinition) bool {
			return apiextensionshelpers.IsCRDConditionTrue(found, apiextensionsv1.Established)
		})
	}
	size := createSamples(t, find(t, all, "reports."+openReports), 3)
	createSamples(t, find(t, all, "workflows.argoproj.io"), 2)

	asAdministrator(t)
	planned(t)
	asReader(t, size)

	reports := objectsOf(t, find(t, all, "reports."+openReports))
	expect.NoError(t, reports.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	// With objects the command would grant annex more rights, which testRights finds.
	wantMovable(t, runDiagnose(t, mainCluster.Kubeconfig), openReports, 0)
	for group, name := range map[string]string{policyReports: "policyreports." + policyReports, openReports: "reports." + openReports} {
		found := runDiagnose(t, mainCluster.Kubeconfig, "--group="+group).Groups[0]
		if found.Move.Verdict != diagnose.MoveYes {
			t.Fatalf("%s without objects: %+v", group, found.Move)
		}
		for _, command := range found.Move.Commands {
			fix(t, mainCluster, command)
		}
		crd := find(t, all, name)
		expect.NoError(t, annex.WaitPublished(t.Context(), group, crd.Spec.Versions[0].Name))
		createSamples(t, crd, 2)
		keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+group+"/")
		if err != nil || len(keys) > 0 {
			t.Errorf("the main cluster's etcd has %q (%v) of %s", keys, err, group)
		}
		if after := runDiagnose(t, mainCluster.Kubeconfig, "--group="+group).Groups[0]; after.Move.Verdict != diagnose.MoveHosted {
			t.Errorf("%s after its move: %+v", group, after.Move)
		}
	}
}

// asAdministrator may read everything.
func asAdministrator(t *testing.T) {
	t.Helper()
	report := runDiagnose(t, mainCluster.Kubeconfig, "--window=1ms")
	for group, objects := range map[string]int64{openReports: 3, "argoproj.io": 2, policyReports: 0, "tekton.dev": 0, "aquasecurity.github.io": 0} {
		wantMovable(t, report, group, objects)
	}
	if report.WritesPerSecond == nil || report.CustomResources.WritesPerSecond == nil || *report.CustomResources.ObjectsPerHour != 0 {
		t.Errorf("rates: %s", asJSON(t, report.CustomResources))
	}
	if webhook := groupIn(t, report, "tekton.dev").Resources[0].ConversionWebhook; webhook != "tekton-pipelines/tekton-pipelines-webhook" {
		t.Errorf("the conversion webhook is %q", webhook)
	}
	if report.EtcdBytes == nil || *report.EtcdBytes == 0 || report.AllObjects == nil || *report.AllObjects < *report.CustomResources.Objects || len(report.MissingRights) > 0 {
		t.Errorf("sums: %s", asJSON(t, report))
	}
}

// wantMovable fails unless a group can move, and has this number of objects just after they were created or deleted.
func wantMovable(t *testing.T, report *diagnose.Report, group string, objects int64) {
	t.Helper()
	found := groupIn(t, report, group)
	if found.Objects == nil || *found.Objects != objects || found.Move.Verdict != diagnose.MoveYes || found.Watches == nil {
		t.Errorf("%s, want %d objects: %s", group, objects, asJSON(t, found))
	}
}

// planned shows the plan of a move, and lets kube-apiserver check the roles that the commands grant.
func planned(t *testing.T) {
	t.Helper()
	plan, err := shell(t, mainCluster, "kubectl annex move "+openReports+" --dry-run")
	expect.NoError(t, err, "%s", plan)
	expect.Contains(t, plan, "reports ", "default", "Nothing was changed.")
	for _, name := range []string{"move", "rollback", "finalize"} {
		fix(t, mainCluster, "kubectl annex "+name+" "+openReports+" --print-rights | kubectl create --dry-run=server -f -")
	}
}

// asReader may list definitions, APIServices and one group; any write would be refused.
func asReader(t *testing.T, size int64) {
	t.Helper()
	const name = "diagnose-reader"
	rbac := kube(t, mainCluster.Config).RbacV1()
	list := []string{"list"}
	expect.Create(t, rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: list},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: list},
		{APIGroups: []string{openReports}, Resources: []string{"*"}, Verbs: list},
	}})
	expect.Create(t, rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	kubeconfig, err := mainCluster.KubeconfigFor(name)
	expect.NoError(t, err)
	var report diagnose.Report
	poll.UntilDone(t, "the reader may list "+openReports, func() (bool, string) {
		var out, errOut bytes.Buffer
		if code := cmd.Execute([]string{"diagnose", "-o=json", "--kubeconfig=" + kubeconfig}, &out, &errOut); code != 0 {
			return false, errOut.String()
		}
		report = diagnose.Report{}
		expect.NoError(t, json.Unmarshal(out.Bytes(), &report))
		found := groupIn(t, &report, openReports)
		return found.Objects != nil && *found.Objects == 3, out.String()
	})
	// The server adds metadata.
	found := groupIn(t, &report, openReports)
	if *found.Bytes < size || *found.Bytes > size+3*2000 || *found.MemoryBytes <= *found.Bytes || found.Watches != nil {
		t.Errorf("3 reports of %d bytes: %s", size, asJSON(t, found))
	}
	if closed := groupIn(t, &report, "argoproj.io"); closed.Move.Verdict != diagnose.MoveUnknown || closed.Objects != nil || !closed.Resources[0].Forbidden {
		t.Errorf("argoproj.io: %s", asJSON(t, closed))
	}
	for _, right := range []string{"get /metrics", "list *.argoproj.io"} {
		if !slices.Contains(report.MissingRights, right) {
			t.Errorf("missing rights %q, want %q", report.MissingRights, right)
		}
	}
	fix(t, mainCluster, report.GrantCommand)
	poll.UntilDone(t, "the reader may read everything", func() (bool, string) {
		complete := runDiagnose(t, kubeconfig)
		return len(complete.MissingRights) == 0, asJSON(t, complete)
	})
}

func runDiagnose(t *testing.T, kubeconfig string, flags ...string) *diagnose.Report {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cmd.Execute(append([]string{"diagnose", "-o=json", "--kubeconfig=" + kubeconfig}, flags...), &out, &errOut); code != 0 {
		t.Fatalf("annex diagnose: exit code %d: %s", code, errOut.String())
	}
	report := &diagnose.Report{}
	expect.NoError(t, json.Unmarshal(out.Bytes(), report))
	return report
}

func groupIn(t *testing.T, report *diagnose.Report, name string) *diagnose.Group {
	t.Helper()
	for _, group := range report.Groups {
		if group.Name == name {
			return group
		}
	}
	t.Fatalf("no group %s in %s", name, asJSON(t, report))
	return nil
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	expect.NoError(t, err)
	return string(text)
}

func find(t *testing.T, all []*apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	index := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name })
	if index < 0 {
		t.Fatalf("no CRD %s", name)
	}
	return all[index]
}

// objectsOf is a client of the objects in the namespace default, through the main cluster.
func objectsOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) dynamic.ResourceInterface {
	t.Helper()
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural}
	return clients.For(t, mainCluster.Config).Dynamic.Resource(resource).Namespace(metav1.NamespaceDefault)
}

// createSamples creates objects of a CRD, and returns their size.
func createSamples(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, count int) (size int64) {
	t.Helper()
	for i := range count {
		pair, err := crgen.New(t.Context(), crd, crd.Spec.Versions[0].Name, metav1.NamespaceDefault, fmt.Sprintf("sample-%d", i))
		expect.NoError(t, err)
		size += int64(len(asJSON(t, pair.Full)))
		poll.UntilNoError(t, "create "+strings.ToLower(crd.Spec.Names.Kind)+" "+pair.Full.GetName(), func() error {
			_, err := objectsOf(t, crd).Create(t.Context(), pair.Full, metav1.CreateOptions{})
			return err
		})
	}
	return size
}
