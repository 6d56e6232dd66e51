// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NamespaceAnnexSystem is the namespace for what annex itself needs.
const NamespaceAnnexSystem = "annex-system"

// SystemNamespaces returns the names of the namespaces that annex makes and that
// cannot be deleted.
func SystemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, NamespaceAnnexSystem}
}
