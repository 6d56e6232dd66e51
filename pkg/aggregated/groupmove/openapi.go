// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// openAPIProblem returns which resource the main cluster's OpenAPI v3 lacks, or an empty string.
func (r *Run) openAPIProblem(ctx context.Context, definitions []*definition) string {
	documents, err := r.config.MainOpenAPI.PathsWithContext(ctx)
	if err != nil {
		return fmt.Sprintf("get the main cluster's OpenAPI: %v", err)
	}
	for _, version := range versions(definitions) {
		document, found := documents["apis/"+version.String()]
		if !found {
			return fmt.Sprintf("the main cluster's OpenAPI lacks %s", version)
		}
		text, err := document.SchemaWithContext(ctx, runtime.ContentTypeJSON)
		if err != nil {
			return fmt.Sprintf("get the main cluster's OpenAPI of %s: %v", version, err)
		}
		if missing := missingFrom(text, version, definitions); missing != "" {
			return fmt.Sprintf("the main cluster's OpenAPI of %s lacks %s", version, missing)
		}
	}
	return ""
}

// missingFrom returns a resource of a version that a document has no path for.
func missingFrom(text []byte, version groupVersion, definitions []*definition) string {
	var document struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Sprintf("paths: %v", err)
	}
	for _, crd := range definitions {
		serves := slices.ContainsFunc(crd.Spec.Versions, func(v definitionVersion) bool { return v.Name == version.Version && v.Served })
		describes := slices.ContainsFunc(slices.Collect(maps.Keys(document.Paths)), func(path string) bool {
			return strings.HasSuffix(path, "/"+crd.Spec.Names.Plural)
		})
		if serves && !describes {
			return crd.Name
		}
	}
	return ""
}
