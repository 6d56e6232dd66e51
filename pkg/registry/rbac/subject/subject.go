// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package subject shows in tables whom a binding is for.
package subject

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Names lists the subjects of one kind. A service account is named with its
// namespace, if it says it.
func Names(subjects []rbacv1.Subject, kind string) string {
	var names []string
	for i := range subjects {
		subject := &subjects[i]
		switch {
		case subject.Kind != kind:
		case kind == rbacv1.ServiceAccountKind && subject.Namespace != "":
			names = append(names, subject.Namespace+"/"+subject.Name)
		default:
			names = append(names, subject.Name)
		}
	}
	return strings.Join(names, ", ")
}
