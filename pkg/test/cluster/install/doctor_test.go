// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	aggregatorclientv1 "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const hosting = "v1alpha1.hosting.annex.dev"

// TestDoctor breaks an installation in one way after the other, and mends it with
// the very command that the doctor prints.
func TestDoctor(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	first := healthy(t, mainCluster)
	for _, check := range []string{
		"main-cluster", "service", "endpoints", "rbac", "groups-rbac", "front-proxy", "leader", "deletions", "apiservice", "certificates",
		"through-main", "published", "resources", "discovery", "openapi", "clock",
	} {
		if _, is := first.find(check, "ok"); !is {
			t.Errorf("the doctor does not say that %s is ok:\n%s", check, first.raw)
		}
	}
	if _, is := first.find("front-proxy", "ok", "main-cluster-front-proxy-ca", "front-proxy-client"); !is {
		t.Errorf("the doctor does not name the front proxy's authority and login:\n%s", first.raw)
	}
	if _, is := first.find("certificates", "ok", "annex serves with a certificate for annex.annex-system.svc"); !is {
		t.Errorf("the doctor has not looked at the certificate that annex serves with:\n%s", first.raw)
	}

	tests := []struct {
		name string
		run  func(t *testing.T, annex *annextest.Annex)
	}{
		{"missing RoleBinding", missingRoleBinding},
		{"missing delegation", missingDelegation},
		{"missing role", missingRole},
		{"too many rights", tooManyRights},
		{"wrong CA bundle", wrongCABundle},
		{"APIService edited by hand", editedAPIService},
		{"APIService taken out of annex's hands", unlabelledAPIService},
		{"wrong Service port", wrongServicePort},
		{"no Service", noService},
		{"two annexes", twoAnnexes},
		{"another annex's view", otherAnnex},
		{"group not let in", groupNotLetIn},
		{"definition changed to an invalid storage version", invalidStorageVersion},
		{"OpenAPI before and after", openAPI},
	}
	for _, test := range tests {
		mended := t.Run(test.name, func(t *testing.T) {
			test.run(t, annex)
			healthy(t, mainCluster)
		})
		if !mended {
			return // the rest would find the same
		}
	}
}

func apiServices(t *testing.T) aggregatorclientv1.APIServiceInterface {
	t.Helper()
	return aggregator(t, mainCluster.Config).ApiregistrationV1().APIServices()
}

func patchAPIService(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := apiServices(t).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func missingRoleBinding(t *testing.T, _ *annextest.Annex) {
	expect.NoError(t, kube(t, mainCluster.Config).RbacV1().RoleBindings("kube-system").Delete(t.Context(), "annex-authentication-reader", metav1.DeleteOptions{}))
	found := finds(t, mainCluster, "rbac", "FAIL", "get/list/watch configmaps extension-apiserver-authentication in kube-system")
	mend(t, mainCluster, found.Mend)
}

func missingDelegation(t *testing.T, _ *annextest.Annex) {
	expect.NoError(t, kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings().Delete(t.Context(), "annex-auth-delegator", metav1.DeleteOptions{}))
	found := finds(t, mainCluster, "rbac", "FAIL", "create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io")
	mend(t, mainCluster, found.Mend)
}

func missingRole(t *testing.T, _ *annextest.Annex) {
	rbac := kube(t, mainCluster.Config).RbacV1()
	expect.NoError(t, rbac.Roles(namespace).Delete(t.Context(), "annex", metav1.DeleteOptions{}))
	expect.NoError(t, rbac.ClusterRoleBindings().Delete(t.Context(), "annex", metav1.DeleteOptions{}))
	found := finds(t, mainCluster, "rbac", "FAIL", "create leases.coordination.k8s.io in annex-system")
	finds(t, mainCluster, "rbac", "FAIL", "get/list/watch namespaces")
	mend(t, mainCluster, found.Mend)
}

func tooManyRights(t *testing.T, _ *annextest.Annex) {
	bindings := kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-too-much"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "annex"}},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	found := finds(t, mainCluster, "rbac", "warn", "may get secrets anywhere")
	output, err := shell(t, mainCluster, found.Mend)
	if err != nil || !strings.Contains(output, "annex-too-much") {
		t.Errorf("%s: %v: it does not show the binding:\n%s", found.Mend, err, output)
	}
	expect.NoError(t, bindings.Delete(t.Context(), "annex-too-much", metav1.DeleteOptions{}))
}

// wrongCABundle can last only while annex may not put it right.
func wrongCABundle(t *testing.T, _ *annextest.Annex) {
	bindings := kube(t, mainCluster.Config).RbacV1().ClusterRoleBindings()
	expect.NoError(t, bindings.Delete(t.Context(), "annex", metav1.DeleteOptions{}))
	finds(t, mainCluster, "rbac", "FAIL", "get/list/watch namespaces")
	patchAPIService(t, hosting, `{"spec":{"caBundle":"`+base64Of(mainCluster.CA())+`"}}`)
	finds(t, mainCluster, "apiservice", "FAIL", "the wrong authorities", "x509")
	found := finds(t, mainCluster, "certificates", "FAIL", "is not the one in Secret annex-system/annex-serving-ca")
	finds(t, mainCluster, "certificates", "FAIL", "a certificate", "that the main cluster cannot verify")
	mend(t, mainCluster, found.Mend)
	finds(t, mainCluster, "apiservice", "ok")
	mend(t, mainCluster, "annex doctor --print-rbac | kubectl apply -f -")
}

func editedAPIService(t *testing.T, _ *annextest.Annex) {
	patchAPIService(t, hosting, `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true,"service":{"name":"nobody","port":1}}}`)
	healthy(t, mainCluster)
	expect.NoError(t, apiServices(t).Delete(t.Context(), hosting, metav1.DeleteOptions{}))
}

func unlabelledAPIService(t *testing.T, _ *annextest.Annex) {
	patchAPIService(t, hosting, `{"metadata":{"labels":{"annex.dev/published-by":null}}}`)
	r := doctor(t, mainCluster, "--publish-service=annex-system/annex:443")
	found, is := r.find("apiservice", "FAIL", "was not created by annex")
	if !is {
		t.Fatalf("the doctor does not find it:\n%s", r.raw)
	}
	mend(t, mainCluster, found.Mend)
}

func openAPI(t *testing.T, annex *annextest.Annex) {
	before := filepath.Join(t.TempDir(), "before.json")
	installCRD(t, mainCluster.Config, crd("bystanders.bystander.example.com"))
	servedByMain(t, "bystander.example.com")
	if r := doctor(t, mainCluster, "--save="+before); r.code != 0 {
		t.Fatalf("--save:\n%s", r.raw)
	}
	expect.NoError(t, annex.AllowGroup(t.Context(), "openapi.example.com"))
	hosted := crd("things.openapi.example.com")
	hosted.Labels = map[string]string{"annex.dev/hosted": "true"}
	installCRD(t, mainCluster.Config, hosted)
	expect.NoError(t, annex.WaitPublished(t.Context(), "openapi.example.com", "v1"))
	poll.UntilDone(t, "OpenAPI is the same outside of annex's groups", func() (bool, string) {
		r := doctor(t, mainCluster, "--compare="+before)
		found, is := r.find("openapi", "ok", "nothing has changed outside of annex's groups")
		return is && r.code == 0 && !strings.Contains(found.Message, " 0 entries"), r.raw
	})

	deleteCRD(t, mainCluster.Config, "bystanders.bystander.example.com")
	poll.UntilDone(t, "the doctor misses what has vanished", func() (bool, string) {
		r := doctor(t, mainCluster, "--compare="+before)
		_, path := r.find("openapi", "FAIL", "path /apis/bystander.example.com/v1/bystanders", "has vanished")
		_, document := r.find("openapi", "FAIL", "document apis/bystander.example.com/v1 of v3 has vanished")
		return path && document && r.code == 1, r.raw
	})
}
