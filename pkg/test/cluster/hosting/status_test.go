// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"encoding/json"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// preflight checks the main cluster before annex is installed, as an administrator and as a user without rights.
func preflight(t *testing.T) {
	t.Helper()
	r := doctor(t, mainCluster, "--preflight")
	for _, check := range []string{"main-cluster", "installation", "aggregated-roles", "front-proxy", "discovery", "openapi", "policies", "clock"} {
		if _, ok := r.find(check, "ok"); !ok || r.code != 0 {
			t.Errorf("the doctor does not report %s as ok before the installation:\n%s", check, r.raw)
		}
	}
	if _, ok := r.find("volumes", "warn", "no default StorageClass"); !ok {
		t.Errorf("the doctor does not report that there is no StorageClass:\n%s", r.raw)
	}
	grantReads(t, "newcomer", rbacv1.PolicyRule{
		APIGroups: []string{"apiregistration.k8s.io", "apiextensions.k8s.io"}, Resources: []string{"apiservices", "customresourcedefinitions"}, Verbs: []string{"list"},
	})
	if _, ok := doctor(t, mainCluster, "--preflight", "--as=newcomer").find("installation", "FAIL", "you may not create namespaces"); !ok {
		t.Errorf("the doctor does not report that a user may not install annex:\n%s", r.raw)
	}
}

// grantReads gives a user a ClusterRole for the time of the test.
func grantReads(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rbac := kube(t, mainCluster.Config).RbacV1()
	role := expect.Create(t, rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, Rules: rules})
	binding := expect.Create(t, rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	t.Cleanup(func() {
		expect.Succeeds(t, rbac.ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
		expect.Succeeds(t, rbac.ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}))
	})
}

// statusThroughMain reads the status as an administrator, and as a user who may only read annex's objects.
func statusThroughMain(t *testing.T, _ *annextest.Annex) {
	output, err := shell(t, mainCluster, "kubectl annex status -o json")
	if err != nil {
		t.Errorf("the status of a sound annex: %v\n%s", err, output)
	}
	var status struct {
		Healthy bool
		Server  struct{ Address, Mode, Version, MainCluster, Leader, CertificateExpires string }
		Stores  []struct {
			Name         string
			ReadyMembers int
		}
	}
	expect.NoError(t, json.Unmarshal([]byte(output), &status))
	s := status.Server
	if !status.Healthy || s.Address != mainCluster.Config.Host || s.Mode != "aggregated" || s.MainCluster == "" || s.Version == "" || s.Leader == "" || s.CertificateExpires == "" ||
		len(status.Stores) != 1 || status.Stores[0].ReadyMembers != 1 {
		t.Errorf("the status is\n%s", output)
	}
	grantReads(t, "viewer", rbacv1.PolicyRule{APIGroups: []string{"hosting.annex.dev"}, Resources: []string{"hostedresources", "stores", "migrations", "staticsources"}, Verbs: []string{"list"}})
	poll.UntilDone(t, "a user with few rights reads the status", func() (bool, string) {
		output, err := shell(t, mainCluster, "kubectl annex status --as=viewer")
		return err == nil, output
	})
}
