// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
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
			findings = append(findings, warn("kubectl get clusterrolebindings,rolebindings -A -o wide | grep "+account,
				"annex (%s) may %s anywhere, which it does not need", account, r))
		}
	}
	return findings
}
