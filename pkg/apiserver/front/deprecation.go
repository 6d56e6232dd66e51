// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/warning"
)

// withWarning warns clients of a deprecated version.
func withWarning(handler http.HandlerFunc, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		warning.AddWarning(req.Context(), "", text)
		handler(w, req)
	}
}

// deprecationWarning returns the warning that upstream gives (defaultDeprecationWarning of
// apiextensions-apiserver), which names the newest version if there is a newer one.
func deprecationWarning(definition *apiextensionsv1.CustomResourceDefinitionSpec, deprecated *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if deprecated.DeprecationWarning != nil {
		return *deprecated.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", definition.Group, deprecated.Name, definition.Names.Kind)
	newest := deprecated.Name
	for _, v := range definition.Versions {
		if v.Served && !v.Deprecated && utilversion.CompareKubeAwareVersionStrings(newest, v.Name) < 0 {
			newest = v.Name
		}
	}
	if newest == deprecated.Name {
		return text
	}
	return fmt.Sprintf("%s; use %s/%s %s", text, definition.Group, newest, definition.Names.Kind)
}
