// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/workqueue"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkRBAC checks whether annex has every right of rbac.yaml, and not some others.
func checkRBAC(ctx context.Context, e *environment) []finding {
	o := options{service: e.service, serviceAccount: e.serviceAccount}
	needed, err := rightsOf(o.rbacManifest())
	if err != nil {
		return []finding{fail(e.program+" version", "the rights that annex needs are not known: %v", err)}
	}
	missing, err := e.denied(ctx, needed)
	if err != nil {
		return []finding{warn(canI("create", "subjectaccessreviews.authorization.k8s.io", ""), "%v", err)}
	}
	byBinding := map[string][]right{}
	for _, r := range missing {
		byBinding[r.binding] = append(byBinding[r.binding], r)
	}
	var findings []finding
	account := e.service.Namespace + "/" + e.serviceAccount
	for _, binding := range slices.Sorted(maps.Keys(byBinding)) {
		findings = append(findings, fail(e.grant(binding), "annex (%s) may not %s", account, listRights(byBinding[binding])))
	}
	if len(findings) == 0 {
		findings = append(findings, ok("annex (%s) has the %d rights that it needs", account, len(needed)))
	}
	return append(findings, e.tooMuch(ctx, account)...)
}

// grant is the command that creates a binding of rbac.yaml.
func (e *environment) grant(binding string) string {
	account := e.service.Namespace + ":" + e.serviceAccount
	switch binding {
	case "ClusterRoleBinding/annex-auth-delegator":
		return fmt.Sprintf("kubectl create clusterrolebinding annex-auth-delegator --clusterrole=%s --serviceaccount=%s", delegatorRole, account)
	case "RoleBinding/annex-authentication-reader":
		return fmt.Sprintf("kubectl -n kube-system create rolebinding annex-authentication-reader --role=%s --serviceaccount=%s", readerRole, account)
	}
	command := e.program + " doctor --print-rbac"
	if e.service.Namespace != manifestNamespace || e.service.Name != manifestService {
		command += " --publish-service=" + e.service.String()
	}
	if e.serviceAccount != manifestServiceAccount {
		command += " --service-account=" + e.serviceAccount
	}
	return command + " | kubectl apply -f -"
}

// listRights names a few objects with their verbs, and counts the others.
func listRights(rights []right) string {
	const enough = 4
	var objects []string
	verbs := map[string][]string{}
	for _, r := range rights {
		if verbs[r.object()] == nil {
			objects = append(objects, r.object())
		}
		verbs[r.object()] = append(verbs[r.object()], r.Verb)
	}
	var named []string
	for i, object := range objects {
		if i == enough {
			return fmt.Sprintf("%s, and the like for %d more", strings.Join(named, ", "), len(objects)-enough)
		}
		named = append(named, strings.Join(verbs[object], "/")+" "+object)
	}
	return strings.Join(named, ", ")
}

// tooMuch warns about rights that annex does not need, which its token would give to an
// attacker.
func (e *environment) tooMuch(ctx context.Context, account string) []finding {
	var findings []finding
	for _, r := range []right{
		{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}},
		{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "update", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}},
		{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods"}},
	} {
		if allowed, err := e.mayAnnex(ctx, r); err == nil && allowed {
			if why := e.grantedFor(ctx, r); why != "" {
				findings = append(findings, ok("annex (%s) may %s anywhere, until %s ends", account, r, why))
				continue
			}
			findings = append(findings, warn("kubectl get clusterrolebindings,rolebindings -A -o wide | grep "+account,
				"annex (%s) may %s anywhere, which it does not need", account, r))
		}
	}
	return findings
}

// grantedFor returns the Migration under way for which `annex rollback` granted a right, or an empty string.
func (e *environment) grantedFor(ctx context.Context, r right) string {
	migrations, err := e.annexThroughMain.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	for _, migration := range migrations.Items {
		if migration.Spec.Operation != hostingv1alpha1.MigrationRollback || migration.Status.Phase.Finished() {
			continue
		}
		role, err := e.main.RbacV1().ClusterRoles().Get(ctx, hostingv1alpha1.HostedRoleName(migration.Spec.Group), metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.ContainsFunc(expand(rule, "", ""), func(granted right) bool { return granted.String() == r.String() })
		}) {
			return "the Migration " + migration.Name
		}
	}
	return ""
}

// right is one right of annex and its origin.
type right struct {
	authorizationv1.ResourceAttributes
	// binding is the kind and name of its binding in rbac.yaml.
	binding string
}

// String returns the right in RBAC's terms.
func (r right) String() string { return r.Verb + " " + r.object() }

func (r right) object() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += " " + r.Name
	}
	if r.Namespace != "" {
		resource += " in " + r.Namespace
	}
	return resource
}

// Roles of the main cluster that rbac.yaml binds.
const (
	delegatorRole = "system:auth-delegator"
	readerRole    = "extension-apiserver-authentication-reader"
)

// builtInRoles has the rules of those roles that annex needs.
var builtInRoles = map[string][]rbacv1.PolicyRule{
	delegatorRole: {
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	},
	readerRole: {{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{maincluster.AuthenticationConfigMap},
		Verbs: []string{"get", "list", "watch"},
	}},
}

// rightsOf returns the rights of a manifest with roles and bindings.
func rightsOf(manifest string) ([]right, error) {
	objects, err := decodeRBAC(manifest)
	if err != nil {
		return nil, err
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for name, of := range builtInRoles {
		rules["ClusterRole/"+name], rules["Role/"+name] = of, of
	}
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole/"+role.Name] = role.Rules
		case *rbacv1.Role:
			rules["Role/"+role.Name] = role.Rules
		}
	}
	var all []right
	for _, object := range objects {
		var of rbacv1.RoleRef
		var kind string
		switch binding := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			of, kind = binding.RoleRef, "ClusterRoleBinding"
		case *rbacv1.RoleBinding:
			of, kind = binding.RoleRef, "RoleBinding"
		default:
			continue
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, fmt.Errorf("read a binding: %w", err)
		}
		granted, known := rules[of.Kind+"/"+of.Name]
		if !known {
			return nil, fmt.Errorf("binding %s names the unknown %s %s", accessor.GetName(), of.Kind, of.Name)
		}
		for _, rule := range granted {
			all = append(all, expand(rule, accessor.GetNamespace(), kind+"/"+accessor.GetName())...)
		}
	}
	return all, nil
}

func decodeRBAC(manifest string) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register RBAC's kinds: %w", err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	var objects []runtime.Object
	for documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read rbac.yaml: %w", err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decode rbac.yaml: %w", err)
		}
		objects = append(objects, object)
	}
}

// expand returns the rights of a rule; without a namespace they are cluster-wide.
func expand(rule rbacv1.PolicyRule, namespace, binding string) []right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []right
	for _, group := range rule.APIGroups {
		for _, path := range rule.Resources {
			resource, subresource, _ := strings.Cut(path, "/")
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, right{binding: binding, ResourceAttributes: authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
					}})
				}
			}
		}
	}
	return all
}

// maxReviews is the number of concurrent reviews.
const maxReviews = 8

// denied returns the rights that annex does not have.
func (e *environment) denied(ctx context.Context, rights []right) ([]right, error) {
	allowed, errs := make([]bool, len(rights)), make([]error, len(rights))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), maxReviews, len(rights), func(i int) {
		allowed[i], errs[i] = e.mayAnnex(ctx, rights[i])
	})
	// The first error is enough: they are mostly the same.
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	var missing []right
	for i, r := range rights {
		if !allowed[i] {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// mayAnnex reports whether annex's service account has a right in the main cluster.
func (e *environment) mayAnnex(ctx context.Context, r right) (bool, error) {
	attributes := r.ResourceAttributes
	review, err := e.main.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + e.service.Namespace + ":" + e.serviceAccount,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + e.service.Namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the main cluster whether annex may %s: %w", r, err)
	}
	return review.Status.Allowed, nil
}
