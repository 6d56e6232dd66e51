// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	aggregatorclientv1 "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const hosting = "v1alpha1.hosting.annex.dev"

// testDoctor breaks an installation in several ways, one after the other, and fixes it with the
// command that the doctor prints.
func testDoctor(t *testing.T) {
	preflight(t)
	annex := startAnnex(t)
	first := waitForOK(t, mainCluster)
	for _, check := range []string{
		"main-cluster", "main-objects", "service", "endpoints", "aggregated-roles", "rbac", "groups-rbac", "front-proxy", "leader", "deletions", "apiservice", "certificates",
		"through-main", "published", "leftovers", "stores", "resources", "migrations", "static-sources", "discovery", "openapi", "clock",
	} {
		if _, ok := first.find(check, "ok"); !ok {
			t.Errorf("the doctor does not report %s as ok:\n%s", check, first.raw)
		}
	}
	if _, ok := first.find("front-proxy", "ok", "main-cluster-front-proxy-ca", "front-proxy-client"); !ok {
		t.Errorf("the doctor does not report the front proxy's CA and client certificate:\n%s", first.raw)
	}
	if _, ok := first.find("certificates", "ok", "annex serves with a certificate for annex.annex-system.svc"); !ok {
		t.Errorf("the doctor does not report the serving certificate:\n%s", first.raw)
	}

	tests := []struct {
		name string
		run  func(t *testing.T, annex *annextest.Annex)
	}{
		{"status", statusThroughMain},
		{"missing RoleBinding", missingRoleBinding},
		{"missing delegation", missingDelegation},
		{"missing role", missingRole},
		{"too many permissions", tooManyPermissions},
		{"wrong CA bundle", wrongCABundle},
		{"APIService edited by hand", editedAPIService},
		{"APIService without annex's label", unlabelledAPIService},
		{"wrong Service port", wrongServicePort},
		{"no Service", noService},
		{"two annexes", twoAnnexes},
		{"another annex's view", otherAnnex},
		{"group not allowed", groupNotAllowed},
		{"CRD changed to an invalid storage version", invalidStorageVersion},
		{"OpenAPI before and after", openAPI},
		{"groups moved as diagnosed", diagnosed},
	}
	for _, test := range tests {
		fixed := t.Run(test.name, func(t *testing.T) {
			test.run(t, annex)
			waitForOK(t, mainCluster)
		})
		if !fixed {
			return // the other cases would find the same fault
		}
	}
}

func apiServices(t *testing.T) aggregatorclientv1.APIServiceInterface {
	t.Helper()
	return clients.For(t, mainCluster.Config).APIServices
}

func missingRoleBinding(t *testing.T, _ *annextest.Annex) {
	expect.Delete(t, kube(t, mainCluster.Config).RbacV1().RoleBindings("kube-system"), "annex-authentication-reader")
	found := waitForFinding(t, mainCluster, "rbac", "FAIL", "get/list/watch configmaps extension-apiserver-authentication in kube-system")
	fix(t, mainCluster, found.Fix)
}

func missingDelegation(t *testing.T, _ *annextest.Annex) {
	expect.Delete(t, kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings(), "annex-auth-delegator")
	found := waitForFinding(t, mainCluster, "rbac", "FAIL", "create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io")
	fix(t, mainCluster, found.Fix)
}

func missingRole(t *testing.T, _ *annextest.Annex) {
	rbac := kube(t, mainCluster.Config).RbacV1()
	expect.Delete(t, rbac.Roles(namespace), "annex")
	expect.Delete(t, rbac.ClusterRoleBindings(), "annex")
	found := waitForFinding(t, mainCluster, "rbac", "FAIL", "create leases.coordination.k8s.io in annex-system")
	waitForFinding(t, mainCluster, "rbac", "FAIL", "get/list/watch namespaces")
	fix(t, mainCluster, found.Fix)
}

func tooManyPermissions(t *testing.T, _ *annextest.Annex) {
	bindings := kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings()
	expect.Create(t, bindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-too-much"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "annex"}},
	})
	found := waitForFinding(t, mainCluster, "rbac", "warn", "may get secrets anywhere")
	output, err := shell(t, mainCluster, found.Fix)
	if err != nil || !strings.Contains(output, "annex-too-much") {
		t.Errorf("%s: %v: the output lacks the binding:\n%s", found.Fix, err, output)
	}
	expect.Delete(t, bindings, "annex-too-much")
}

// wrongCABundle also removes annex's permissions, so that it cannot correct the bundle.
func wrongCABundle(t *testing.T, _ *annextest.Annex) {
	bindings := kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings()
	expect.Delete(t, bindings, "annex")
	waitForFinding(t, mainCluster, "rbac", "FAIL", "get/list/watch namespaces")
	expect.Patch(t, apiServices(t), hosting, `{"spec":{"caBundle":"`+base64Of(mainCluster.CA())+`"}}`)
	if annextest.ReportsWrongAuthorities(t, mainCluster) {
		waitForFinding(t, mainCluster, "apiservice", "FAIL", "the wrong authorities", "x509")
	}
	found := waitForFinding(t, mainCluster, "certificates", "FAIL", "is not the one in Secret annex-system/annex-serving-ca")
	waitForFinding(t, mainCluster, "certificates", "FAIL", "a certificate", "that the main cluster cannot verify")
	fix(t, mainCluster, found.Fix)
	waitForFinding(t, mainCluster, "apiservice", "ok")
	fix(t, mainCluster, "annex doctor --print-rbac | kubectl apply -f -")
}

func editedAPIService(t *testing.T, _ *annextest.Annex) {
	expect.Patch(t, apiServices(t), hosting, `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true,"service":{"name":"missing","port":1}}}`)
	waitForOK(t, mainCluster)
	expect.Delete(t, apiServices(t), hosting)
}

func unlabelledAPIService(t *testing.T, _ *annextest.Annex) {
	expect.Patch(t, apiServices(t), hosting, `{"metadata":{"labels":{"annex.dev/published-by":null}}}`)
	r := doctor(t, mainCluster, "--publish-service=annex-system/annex:443")
	found, ok := r.find("apiservice", "FAIL", "was not created by annex")
	if !ok {
		t.Fatalf("the doctor does not report it:\n%s", r.raw)
	}
	fix(t, mainCluster, found.Fix)
}

func openAPI(t *testing.T, annex *annextest.Annex) {
	before := filepath.Join(t.TempDir(), "before.json")
	expect.Create(t, definitions(t, mainCluster.Config), crd("bystanders.bystander.example.com"))
	servedByMain(t, "bystander.example.com")
	if r := doctor(t, mainCluster, "--save="+before); r.code != 0 {
		t.Fatalf("--save:\n%s", r.raw)
	}
	expect.NoError(t, annex.AllowGroup(t.Context(), "openapi.example.com"))
	expect.Create(t, definitions(t, mainCluster.Config), hosted(crd("things.openapi.example.com")))
	expect.NoError(t, annex.WaitPublished(t.Context(), "openapi.example.com", "v1"))
	poll.UntilDone(t, "OpenAPI is the same outside of annex's groups", func() (bool, string) {
		r := doctor(t, mainCluster, "--compare="+before)
		found, ok := r.find("openapi", "ok", "nothing has changed outside of annex's groups")
		return ok && r.code == 0 && !strings.Contains(found.Message, " 0 entries"), r.raw
	})

	expect.Delete(t, definitions(t, mainCluster.Config), "bystanders.bystander.example.com")
	poll.UntilDone(t, "the doctor reports the missing document", func() (bool, string) {
		r := doctor(t, mainCluster, "--compare="+before)
		_, path := r.find("openapi", "FAIL", "path /apis/bystander.example.com/v1/bystanders", "has vanished")
		_, document := r.find("openapi", "FAIL", "document apis/bystander.example.com/v1 of v3 has vanished")
		return path && document && r.code == 1, r.raw
	})
}

// TestStopped: the doctor reports the new CA of the front proxy, a stopped annex and its deleted APIService, and
// releases CRDs that wait for annex. After a restart no fault remains, and after a removal in the documented
// order every CRD can be deleted.
func TestStopped(t *testing.T) {
	t.Parallel()
	const group, left, deleted = "stopped.example.com", "lefts.stopped.example.com", "widgets.stopped.example.com"
	cluster := ownCluster(t)
	annex := annextest.Start(t, cluster)
	expect.NoError(t, annex.AllowGroup(t.Context(), group))
	for _, name := range []string{left, deleted} {
		expect.Create(t, definitions(t, cluster.Config), hosted(crd(name)))
	}
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	frontProxy, _ := waitForOK(t, cluster).find("front-proxy", "ok")
	expect.NoError(t, cluster.RotateFrontProxyCA(t.Context()))
	if rotated, _ := waitForOK(t, cluster).find("front-proxy", "ok"); rotated.Message == frontProxy.Message || rotated.Message == "" {
		t.Errorf("before the rotation of the front proxy's CA: %s\nafter: %s", frontProxy.Message, rotated.Message)
	}
	annex.Stop(t)
	waitForFinding(t, cluster, "leader", "FAIL", "no replica runs the controllers")
	// A read shows it until the main cluster's own check does, within half a minute.
	poll.UntilDone(t, "the doctor reports that annex does not answer", func() (bool, string) {
		r := doctor(t, cluster)
		_, read := r.find("through-main", "FAIL", "cannot be read through the main cluster")
		_, checked := r.find("apiservice", "FAIL", "does not reach annex")
		return read || checked, r.raw
	})
	output, err := shell(t, cluster, "kubectl annex status")
	expect.Error(t, err, "exit status 1")
	expect.Contains(t, output, cluster.Config.Host, "NEEDS ATTENTION", "no replica runs the controllers", "problems found")
	expect.Delete(t, clients.For(t, cluster.Config).APIServices, hosting)
	waitForFinding(t, cluster, "apiservice", "FAIL", "there is no APIService")

	waitForFinding(t, cluster, "deletions", "warn", left, "Start annex")
	fix(t, cluster, "kubectl delete crd "+deleted+" --wait=false")
	waitForFinding(t, cluster, "deletions", "FAIL", deleted, "Start annex")
	fix(t, cluster, "kubectl patch crd "+deleted+` --type=merge -p '{"metadata":{"finalizers":null}}'`)
	fix(t, cluster, "kubectl wait --for=delete --timeout=100s crd/"+deleted)

	again, err := annex.Launch(annex.DataDir)
	expect.NoError(t, err)
	defer again.Stop(t)
	waitForFinding(t, cluster, "resources", "FAIL", deleted, "MainDefinitionDeleted", "all objects")
	expect.Delete(t, definitions(t, again.AnnexConfig), deleted)
	waitForOK(t, cluster)

	fix(t, cluster, "kubectl label crds -l annex.dev/hosted=true annex.dev/hosted-")
	poll.UntilDone(t, "annex removes its finalizers", func() (bool, string) {
		output, err := shell(t, cluster, "kubectl get crds -o jsonpath='{.items[*].metadata.finalizers}'")
		return err == nil && !strings.Contains(output, "annex.dev"), output
	})
	again.Stop(t)
	fix(t, cluster, "kubectl delete apiservices -l annex.dev/published-by=annex-system.annex")
	fix(t, cluster, "kubectl delete crd "+left+" --timeout=100s")
}
