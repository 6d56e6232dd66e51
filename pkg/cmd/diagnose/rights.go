// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

const (
	roleName   = "annex-diagnose"
	reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// PrintRights prints the role that a user needs for a complete report on a cluster, and its binding.
func PrintRights(ctx context.Context, client restclient.Interface, user string, out io.Writer) error {
	s := newSurvey("", client)
	if err := s.readDefinitions(ctx, ""); err != nil {
		return fmt.Errorf("read the groups of the role: %w", err)
	}
	list := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list"}}
	}
	rules := []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
		list(apiextensionsv1.GroupName, "customresourcedefinitions"),
		list(apiregistrationv1.GroupName, "apiservices"),
		list(hostingv1alpha1.GroupName, "migrations"),
	}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		rule := list(name)
		for _, r := range s.groups[name].Resources {
			rule.Resources = append(rule.Resources, r.Name)
		}
		slices.Sort(rule.Resources)
		rules = append(rules, rule)
	}
	return output.PrintYAML(out,
		&rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: roleName}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: roleName + ":" + user},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName},
		})
}

// grantCommand returns the command that gives the caller the role. It names USER if the cluster does not return a name.
func grantCommand(ctx context.Context, client restclient.Interface) string {
	var review authenticationv1.SelfSubjectReview
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	answer, err := login.Raw(client.Post().AbsPath(reviewPath).SetHeader("Content-Type", "application/json").Body(body).Do(ctx))
	if err == nil {
		err = json.Unmarshal(answer, &review)
	}
	user := review.Status.UserInfo.Username
	if err != nil || user == "" {
		user = "USER"
	}
	return "kubectl annex diagnose --print-rights=" + output.ShellWord(user) + " | kubectl apply -f -"
}
