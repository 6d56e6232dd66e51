// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
)

// checkRBAC checks whether annex has every right of rbac.yaml, and not some others.
func checkRBAC(ctx context.Context, e *environment) []Finding {
	needed, err := rightsOf(e.RBACManifest())
	if err != nil {
		return []Finding{fail(e.Program+" version", "the rights that annex needs are not known: %v", err)}
	}
	var findings []Finding
	count, account := 0, e.Service.Namespace+"/"+e.ServiceAccount
	for _, binding := range slices.Sorted(maps.Keys(needed)) {
		count += len(needed[binding])
		missing, err := e.missing(ctx, needed[binding])
		if err != nil {
			return []Finding{warn(canReview, "%v", err)}
		}
		if len(missing) > 0 {
			findings = append(findings, fail(e.grant(binding), "annex (%s) may not %s", account, footprint.ListRights(missing)))
		}
	}
	return append(orOK(findings, "annex (%s) has the %d rights that it needs", account, count), e.tooMuch(ctx, account)...)
}

// missing returns the rights that annex does not have.
func (e *environment) missing(ctx context.Context, needed []footprint.Right) ([]footprint.Right, error) {
	return footprint.MissingRights(ctx, e.Kube, "system:serviceaccount:"+e.Service.Namespace+":"+e.ServiceAccount, needed)
}

// grant is the command that creates a binding of rbac.yaml.
func (e *environment) grant(binding string) string {
	account := e.Service.Namespace + ":" + e.ServiceAccount
	switch binding {
	case "ClusterRoleBinding/annex-auth-delegator":
		return fmt.Sprintf("kubectl create clusterrolebinding annex-auth-delegator --clusterrole=%s --serviceaccount=%s", delegatorRole, account)
	case "RoleBinding/annex-authentication-reader":
		return fmt.Sprintf("kubectl -n kube-system create rolebinding annex-authentication-reader --role=%s --serviceaccount=%s", readerRole, account)
	}
	command := e.Program + " doctor --print-rbac"
	if e.Service.Namespace != manifestNamespace || e.Service.Name != manifestService {
		command += " --publish-service=" + e.Service.String()
	}
	if e.ServiceAccount != manifestServiceAccount {
		command += " --service-account=" + e.ServiceAccount
	}
	return command + " | kubectl apply -f -"
}

// tooMuch warns about rights that annex does not need, which its token would give to an
// attacker.
func (e *environment) tooMuch(ctx context.Context, account string) []Finding {
	var findings []Finding
	for _, rule := range []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}},
		{Verbs: []string{"update"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}},
	} {
		r := footprint.RightsOf("", rule)
		if missing, err := e.missing(ctx, r); err != nil || len(missing) > 0 {
			continue
		}
		if why := e.grantedFor(ctx, rule); why != "" {
			findings = append(findings, ok("annex (%s) may %s anywhere, until the Migration %s ends", account, r[0], why))
		} else {
			findings = append(findings, warn("kubectl get clusterrolebindings,rolebindings -A -o wide | grep "+account,
				"annex (%s) may %s anywhere, which it does not need", account, r[0]))
		}
	}
	return findings
}

// grantedFor returns the Migration under way for which `annex rollback` granted a right, or "".
func (e *environment) grantedFor(ctx context.Context, rule rbacv1.PolicyRule) string {
	migrations, err := e.Annex.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	for _, migration := range migrations.Items {
		if migration.Spec.Operation != hostingv1alpha1.MigrationRollback || migration.Status.Phase.Finished() {
			continue
		}
		role, err := e.Kube.RbacV1().ClusterRoles().Get(ctx, hostingv1alpha1.HostedRoleName(migration.Spec.Group), metav1.GetOptions{})
		if err != nil {
			continue
		}
		if covers, _ := validation.Covers(role.Rules, []rbacv1.PolicyRule{rule}); covers {
			return migration.Name
		}
	}
	return ""
}

// Roles of the main cluster that rbac.yaml binds.
const (
	delegatorRole = "system:auth-delegator"
	readerRole    = "extension-apiserver-authentication-reader"
)

// builtInRoles returns the rules of those roles that annex needs, by kind and name.
func builtInRoles() map[string][]rbacv1.PolicyRule {
	return map[string][]rbacv1.PolicyRule{
		"ClusterRole/" + delegatorRole: {
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		},
		"Role/" + readerRole: {{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{maincluster.AuthenticationConfigMap},
			Verbs: []string{"get", "list", "watch"},
		}},
	}
}

// rightsOf returns the rights that the bindings of a manifest give, by kind and name of the binding.
func rightsOf(manifest string) (map[string][]footprint.Right, error) {
	// document is a role or a binding.
	type document struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Rules             []rbacv1.PolicyRule `json:"rules"`
		RoleRef           rbacv1.RoleRef      `json:"roleRef"`
	}
	roles, bindings, given := builtInRoles(), []document{}, map[string][]footprint.Right{}
	const bufferSize = 4096
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), bufferSize); ; {
		var d document
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("decode rbac.yaml: %w", err)
		}
		switch d.Kind {
		case "ClusterRole", "Role":
			roles[d.Kind+"/"+d.Name] = d.Rules
		case "ClusterRoleBinding", "RoleBinding":
			bindings = append(bindings, d)
		default:
			return nil, fmt.Errorf("decode rbac.yaml: unknown kind %q", d.Kind)
		}
	}
	for _, binding := range bindings {
		of := binding.RoleRef
		rules, known := roles[of.Kind+"/"+of.Name]
		if !known {
			return nil, fmt.Errorf("binding %s names the unknown %s %s", binding.Name, of.Kind, of.Name)
		}
		given[binding.Kind+"/"+binding.Name] = footprint.RightsOf(binding.Namespace, rules...)
	}
	return given, nil
}
