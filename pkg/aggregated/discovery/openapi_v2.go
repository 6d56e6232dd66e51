// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// mainDefinitions are schemas that every kube-apiserver has and that annex's
// documents refer to. Left out of annex's document they are found in the main
// cluster's; with it, a description that changed between two releases would put
// them into the main cluster's a second time, under a name that ends in _v2.
var mainDefinitions = sets.New(
	"io.k8s.api.autoscaling.v1.Scale",
	"io.k8s.api.autoscaling.v1.ScaleSpec",
	"io.k8s.api.autoscaling.v1.ScaleStatus",
	"io.k8s.apimachinery.pkg.api.resource.Quantity",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Condition",
	"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
	"io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
	"io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
	"io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
	"io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
	"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
	"io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Status",
	"io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause",
	"io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time",
	"io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
	"io.k8s.apimachinery.pkg.runtime.RawExtension",
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString",
)

// filteredV2 caches the filtered document, because filtering parses the whole one.
type filteredV2 struct {
	sync.Mutex
	// of is the ETag of the unfiltered document, and seen the fingerprint of the view.
	of, seen string
	document *document
}

// collectV2 filters the document of v2 if it has changed.
func (a *filter) collectV2(r *http.Request, seen *view) (*document, *failure) {
	a.v2.Lock()
	defer a.v2.Unlock()
	fingerprint := seen.fingerprint()
	etag := ""
	if a.v2.seen == fingerprint {
		etag = a.v2.of
	}
	inner, failed := a.fetch(r, runtime.ContentTypeJSON, etag)
	if failed != nil {
		return nil, failed
	}
	if inner.unchanged {
		return a.v2.document, nil
	}
	filtered, err := filterV2(inner.content, seen)
	if err != nil {
		return nil, internalFailure(r.Context(), err)
	}
	a.v2.of, a.v2.seen, a.v2.document = inner.etag, fingerprint, filtered
	return filtered, nil
}

// fingerprint is equal for views that filter equally.
func (v *view) fingerprint() string {
	var lines []string
	for version, defined := range v.versions {
		lines = append(lines, fmt.Sprint(version, sets.List(defined)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// swagger is a document of v2, parsed as deeply as filtering needs.
type swagger struct {
	Swagger     json.RawMessage            `json:"swagger"`
	Info        json.RawMessage            `json:"info"`
	Paths       map[string]json.RawMessage `json:"paths"`
	Definitions map[string]json.RawMessage `json:"definitions,omitempty"`
	Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
}

// filterV2 keeps the paths of a view and the definitions they refer to.
func filterV2(content []byte, seen *view) (*document, error) {
	var whole swagger
	if err := json.Unmarshal(content, &whole); err != nil {
		return nil, fmt.Errorf("read the document of OpenAPI v2: %w", err)
	}
	kept := swagger{
		Swagger:     whole.Swagger,
		Info:        whole.Info,
		Paths:       map[string]json.RawMessage{},
		Definitions: map[string]json.RawMessage{},
		Parameters:  map[string]json.RawMessage{},
	}
	present := sets.New[schema.GroupVersion]()
	for path, item := range whole.Paths {
		version, resource := splitPath(path)
		if defined, served := seen.versions[version]; served && resource != "" && !defined.Has(resource) {
			kept.Paths[path] = item
			present.Insert(version)
			kept.addReferences(&whole, item)
		}
	}
	filtered, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("write the document of OpenAPI v2: %w", err)
	}
	return newDocument(filtered, present.Has), nil
}

// reference matches a reference to another part of the document.
var reference = regexp.MustCompile(`"\$ref":\s*"#/(definitions|parameters)/([^"]+)"`)

// addReferences copies everything that a part of a document refers to, recursively.
func (s *swagger) addReferences(whole *swagger, part json.RawMessage) {
	for _, found := range reference.FindAllSubmatch(part, -1) {
		from, to, name := whole.Definitions, s.Definitions, string(found[2])
		if string(found[1]) == "parameters" {
			from, to = whole.Parameters, s.Parameters
		}
		referred, exists := from[name]
		if _, done := to[name]; done || !exists || mainDefinitions.Has(name) {
			continue
		}
		to[name] = referred
		s.addReferences(whole, referred)
	}
}

// splitPath returns the version and the resource of a path. A path of discovery
// has no resource.
func splitPath(path string) (version schema.GroupVersion, resource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 3 || parts[0] != "apis" {
		return schema.GroupVersion{}, ""
	}
	version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	if len(parts) > 1 && parts[0] == "watch" {
		parts = parts[1:]
	}
	switch {
	case len(parts) == 0:
		return version, ""
	case len(parts) >= 3 && parts[0] == "namespaces":
		return version, parts[2]
	}
	return version, parts[0]
}
