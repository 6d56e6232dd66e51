// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// The names are the same as in Kubernetes, except annex's own.
const (
	clusterAdmin     = "cluster-admin"
	discovery        = "system:discovery"
	basicUser        = "system:basic-user"
	publicInfoViewer = "system:public-info-viewer"
	issuerDiscovery  = "system:service-account-issuer-discovery"
	monitoring       = "system:monitoring"
	authDelegator    = "system:auth-delegator"
	hostingView      = "annex:hosting-view"
	hostingEdit      = "annex:hosting-edit"
)

// aggregateTo is followed by the name of the aggregated role.
const aggregateTo = rbacv1.GroupName + "/aggregate-to-"

var (
	read      = []string{"get", "list", "watch"}
	write     = []string{"create", "update", "patch", "delete", "deletecollection"}
	readWrite = slices.Concat(read, write)
)

// healthPaths and versionPaths are open to anonymous users and all users.
var (
	healthPaths  = []string{"/livez", "/readyz", "/healthz"}
	versionPaths = []string{"/version", "/version/"}
)

// defaultClusterRoles are ensured at every start. Compared with Kubernetes there are no
// workloads; authors of custom resources grant permissions by aggregation.
func defaultClusterRoles() []*rbacv1.ClusterRole {
	roles := slices.Concat(systemClusterRoles(), userClusterRoles(), hostingClusterRoles())
	for _, role := range roles {
		role.ObjectMeta = defaultMeta(role.Name, role.Labels)
	}
	return roles
}

// systemClusterRoles are for all users, and for monitoring and delegation.
func systemClusterRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole(clusterAdmin, on(rbacv1.APIGroupAll, rbacv1.VerbAll)(rbacv1.ResourceAll), at(rbacv1.VerbAll)(rbacv1.NonResourceAll)),
		clusterRole(discovery, at("get")(slices.Concat(healthPaths, versionPaths,
			[]string{"/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*"})...)),
		clusterRole(publicInfoViewer, at("get")(slices.Concat(healthPaths, versionPaths)...)),
		// The single checks may show more details.
		clusterRole(monitoring, at("get")(slices.Concat(healthPaths,
			[]string{"/livez/*", "/readyz/*", "/healthz/*", "/metrics", "/metrics/slis", "/statusz", "/flagz"})...)),
		clusterRole(issuerDiscovery, at("get")(
			"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/")),
		clusterRole(basicUser,
			on(authorizationv1.GroupName, "create")("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
			on(authenticationv1.GroupName, "create")("selfsubjectreviews")),
		// For servers that delegate authentication and authorization to annex.
		clusterRole(authDelegator,
			on(authenticationv1.GroupName, "create")("tokenreviews"),
			on(authorizationv1.GroupName, "create")("subjectaccessreviews")),
	}
}

// userClusterRoles are for bindings in a namespace. Each aggregates roles with its label,
// including the less powerful role.
func userClusterRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		aggregated("admin"),
		labelled(aggregated("edit"), "admin"),
		labelled(aggregated("view"), "edit"),
		labelled(clusterRole("system:aggregate-to-admin",
			on(authorizationv1.GroupName, "create")("localsubjectaccessreviews"),
			on(rbacv1.GroupName, readWrite...)("roles", "rolebindings")), "admin"),
		labelled(clusterRole("system:aggregate-to-edit",
			// Permission to use a service account implies its permissions, as in
			// Kubernetes.
			on(corev1.GroupName, read...)("secrets"),
			on(corev1.GroupName, "impersonate")("serviceaccounts"),
			on(corev1.GroupName, write...)("configmaps", "secrets", "serviceaccounts"),
			on(corev1.GroupName, "create")("serviceaccounts/token"),
			on(corev1.GroupName, write...)("events"),
			on(eventsv1.GroupName, write...)("events"),
			on(coordinationv1.GroupName, readWrite...)("leases")), "edit"),
		labelled(clusterRole("system:aggregate-to-view",
			// A namespace can be read from within.
			on(corev1.GroupName, read...)("configmaps", "serviceaccounts", "namespaces", "namespaces/status", "resourcequotas", "resourcequotas/status"),
			on(corev1.GroupName, read...)("events"),
			on(eventsv1.GroupName, read...)("events")), "view"),
	}
}

// hostingClusterRoles are for annex's own group, which is cluster-scoped: they need a
// ClusterRoleBinding. To write InjectionProfiles is to run containers in every namespace, so only
// cluster-admin may.
func hostingClusterRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole(hostingView,
			on(hostingv1alpha1.GroupName, read...)("stores", "stores/status", "hostedresources", "hostedresources/status", "migrations", "migrations/status",
				"injectionprofiles", "injectionprofiles/status", "staticsources", "staticsources/status")),
		clusterRole(hostingEdit,
			on(hostingv1alpha1.GroupName, readWrite...)("stores", "hostedresources", "migrations"),
			on(hostingv1alpha1.GroupName, read...)("stores/status", "hostedresources/status", "migrations/status", "injectionprofiles", "injectionprofiles/status", "staticsources", "staticsources/status")),
	}
}

// defaultClusterRoleBindings are ensured at every start.
func defaultClusterRoleBindings() []*rbacv1.ClusterRoleBinding {
	const (
		authenticated   = "system:authenticated"
		unauthenticated = "system:unauthenticated"
	)
	return []*rbacv1.ClusterRoleBinding{
		toGroups(clusterAdmin, "system:masters"),
		toGroups(monitoring, "system:monitoring"),
		toGroups(discovery, authenticated),
		toGroups(basicUser, authenticated),
		toGroups(publicInfoViewer, authenticated, unauthenticated),
		toGroups(issuerDiscovery, "system:serviceaccounts"),
	}
}

// defaultMeta marks a role or binding as created by annex, and permits updates.
func defaultMeta(name string, labels map[string]string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
	for key, value := range labels {
		meta.Labels[key] = value
	}
	return meta
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

// aggregated is a role with the rules of those with its label.
func aggregated(name string) *rbacv1.ClusterRole {
	role := clusterRole(name)
	role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{aggregateTo + name: "true"}},
	}}
	return role
}

// labelled is a role with the label of the one that aggregates it.
func labelled(role *rbacv1.ClusterRole, by string) *rbacv1.ClusterRole {
	role.Labels = map[string]string{aggregateTo + by: "true"}
	return role
}

// on creates rules about resources of a group.
func on(group string, verbs ...string) func(resources ...string) rbacv1.PolicyRule {
	return func(resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
	}
}

// at creates rules about paths.
func at(verb string) func(urls ...string) rbacv1.PolicyRule {
	return func(urls ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: urls}
	}
}

// toGroups binds a role to groups, under the role's name.
func toGroups(role string, groups ...string) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: defaultMeta(role, nil),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, group := range groups {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return binding
}
