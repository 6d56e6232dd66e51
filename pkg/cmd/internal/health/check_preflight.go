// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
)

// installRights are what a user needs to apply artifacts/deploy. Without escalate and bind, a user cannot grant rights that they do not have.
var installRights = append(footprint.RightsOf("",
	rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}},
	rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"create", "escalate", "bind"}},
	rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterrolebindings"}, Verbs: []string{"create"}}),
	append(footprint.RightsOf(manifestNamespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "services", "persistentvolumeclaims"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"create"}}),
		footprint.RightsOf(metav1.NamespaceSystem, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create"}})...)...)

// checkInstallation checks whether annex can be installed: nothing has its names, and the user has the rights.
func checkInstallation(ctx context.Context, e *environment) []Finding {
	var findings []Finding
	if hosting := e.hosting(); hosting != nil {
		findings = append(findings, fail("kubectl get apiservice "+hosting.Name+" -o yaml", "the main cluster has an APIService %s: annex is installed already, or another server has its group", hosting.Name))
	}
	var missing []footprint.Right
	for _, right := range installRights {
		review, err := e.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right.ResourceAttributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return append(findings, warn("kubectl auth can-i --list", "your rights are not known: %v", err))
		}
		if !review.Status.Allowed {
			missing = append(missing, right)
		}
	}
	if len(missing) > 0 {
		findings = append(findings, fail("kubectl auth whoami", "you may not %s, which an installation needs", footprint.ListRights(missing)))
	}
	return orOK(findings, "annex is not installed, and you have the rights to install it")
}

// checkAggregatedRoles checks whether kube-controller-manager combines ClusterRoles: annex's rights for groups are granted so.
func checkAggregatedRoles(ctx context.Context, e *environment) []Finding {
	roles, err := e.Kube.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{warn(canI("list", "clusterroles.rbac.authorization.k8s.io", ""), "the ClusterRoles cannot be read: %v", err)}
	}
	aggregated, behind := 0, []string{}
	for i := range roles.Items {
		role := &roles.Items[i]
		if role.AggregationRule == nil {
			continue
		}
		aggregated++
		if lacks(role, roles.Items) {
			behind = append(behind, role.Name)
		}
	}
	if len(behind) > 0 {
		return []Finding{fail("kubectl -n kube-system get lease kube-controller-manager",
			"kube-controller-manager does not aggregate ClusterRoles, so that annex gets no rights to the groups that it moves: %s lack rules of the roles that they select", strings.Join(behind, ", "))}
	}
	return []Finding{ok("kube-controller-manager aggregates ClusterRoles: %d are complete", aggregated)}
}

// lacks reports whether an aggregated role lacks rules of a role that it selects.
func lacks(aggregated *rbacv1.ClusterRole, all []rbacv1.ClusterRole) bool {
	for _, by := range aggregated.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&by)
		if err != nil {
			continue
		}
		for i := range all {
			if all[i].Name == aggregated.Name || !selector.Matches(labels.Set(all[i].Labels)) {
				continue
			}
			if covers, _ := validation.Covers(aggregated.Rules, all[i].Rules); !covers {
				return true
			}
		}
	}
	return false
}

// checkVolumes checks whether the main cluster can provide the volume of annex's embedded etcd.
func checkVolumes(ctx context.Context, e *environment) []Finding {
	classes, err := e.Kube.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{warn(canI("list", "storageclasses.storage.k8s.io", ""), "the StorageClasses cannot be read: %v", err)}
	}
	standard := slices.IndexFunc(classes.Items, func(class storagev1.StorageClass) bool {
		return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
	})
	if standard < 0 {
		return []Finding{warn("kubectl get storageclasses", "there is no default StorageClass among %d: name one for the volume of annex's etcd, or use an etcd of your own", len(classes.Items))}
	}
	return []Finding{ok("%s provides the volume of annex's etcd", fmt.Sprintf("StorageClass %q", classes.Items[standard].Name))}
}
