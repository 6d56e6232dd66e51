// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NamespaceAnnexSystem is the namespace of objects that annex itself needs.
const NamespaceAnnexSystem = "annex-system"

// SystemNamespaces returns the namespaces that annex creates and that cannot be deleted.
func SystemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, NamespaceAnnexSystem}
}
