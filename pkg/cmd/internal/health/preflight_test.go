// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
)

func TestInstallation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fixture fixture
		allowed bool
		want    []want
	}{
		"fine":      {fixture{}, true, []want{{LevelOK, "you have the rights", ""}}},
		"no rights": {fixture{}, false, []want{{LevelFail, "you may not create namespaces, create/escalate/bind clusterroles.rbac.authorization.k8s.io", "kubectl auth whoami"}}},
		"there":     {fixture{apiServices: []runtime.Object{grouptest.Published("hosting.annex.dev", "v1alpha1", "")}}, true, []want{{LevelFail, "annex is installed already", "kubectl get apiservice"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := tc.fixture.environment()
			e.Kube.(*fake.Clientset).PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
				review.Status.Allowed = tc.allowed
				return true, review, nil
			})
			compare(t, checkInstallation(t.Context(), e), tc.want)
		})
	}
}

func TestAggregatedRoles(t *testing.T) {
	t.Parallel()
	pods := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	selected := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: map[string]string{"aggregate": "true"}}, Rules: pods}
	whole := func(rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "whole"}, Rules: rules, AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"aggregate": "true"}}},
		}}
	}
	runCheck(t, checkAggregatedRoles, map[string]checkTest{
		"fine":   {kube(selected, whole(pods)), []want{{LevelOK, "1 are complete", ""}}},
		"behind": {kube(selected, whole(nil)), []want{{LevelFail, "whole lack rules", "kube-controller-manager"}}},
		"none":   {kube(selected), []want{{LevelOK, "0 are complete", ""}}},
	})
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	class := func(name, standard string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": standard}}}
	}
	runCheck(t, checkVolumes, map[string]checkTest{
		"fine":       {kube(class("slow", "false"), class("fast", "true")), []want{{LevelOK, `StorageClass "fast"`, ""}}},
		"no default": {kube(class("slow", "false")), []want{{LevelWarn, "no default StorageClass among 1", "kubectl get storageclasses"}}},
	})
}
