// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// Unsure is the error of a write that cannot be planned. Its text is the reason, as metrics have it.
type Unsure string

// Error implements error.
func (u Unsure) Error() string { return string(u) }

// The reasons.
const (
	// ErrBody is returned for bodies that are no JSON objects, or that the decoders of Kubernetes change.
	ErrBody Unsure = "body"
	// errSchema is returned for results that validation may refuse, or pruning and defaulting change.
	errSchema Unsure = "schema"
	// errIdentity is returned for another kind.
	errIdentity Unsure = "identity"
	// ErrVersion is returned for a resource version that the stored object does not have.
	ErrVersion Unsure = "version"
	// errMetadata is returned for metadata of another object, for changes of metadata that is not editable, and for those that
	// may be invalid.
	errMetadata Unsure = "metadata"
	// errManagedFields is returned for managers whose fields cannot be computed.
	errManagedFields Unsure = "managed_fields"
	// errDeleting is returned for objects that are being deleted and gain a finalizer or have a grace period, and for
	// deletions of objects that wait for the garbage collector.
	errDeleting Unsure = "deleting"
)

// Write is a request that creates or updates an object.
type Write struct {
	// Body is the whole object, or, with Patch, a JSON merge patch, or, with Apply, an apply configuration.
	Body         []byte
	Patch, Apply bool
	// Force lets an apply configuration take over the fields of other managers.
	Force bool
	// Status is set for the subresource status.
	Status bool
	// Manager is the field manager. It may be empty.
	Manager string
}

// manager returns the JSON of the field manager, without its quotes. Upstream has a name for none.
func (w Write) manager() string {
	encoded, err := json.Marshal(cmp.Or(w.Manager, "unknown"))
	if err != nil {
		panic(err) // a string
	}
	return unquoted(string(encoded))
}

func (w Write) subresource() string {
	if w.Status {
		return `"status"`
	}
	return ""
}

// listField makes upstream's handlers take an object for a list.
const listField = "items"

// Schema plans writes of the objects of a version. It may be used concurrently.
type Schema struct {
	// apiVersion and kind are JSON.
	apiVersion, kind string
	root             *rule
	// hasStatus is set if the status is a subresource, and namespaced if objects have namespaces.
	hasStatus, namespaced bool
	scale                 *scale    // nil if there is no such subresource
	rules                 *celRules // nil without any
}

// NewSchema compiles the schema of a version, which is the storage version. It returns nil if no write can be planned.
func NewSchema(definition *apiextensionsv1.CustomResourceDefinition, version string) (*Schema, error) {
	found, err := apihelpers.GetSchemaForVersion(definition, version)
	if err != nil || found == nil || found.OpenAPIV3Schema == nil || definition.Spec.PreserveUnknownFields {
		return nil, err
	}
	schema := *found.OpenAPIV3Schema
	if metadata := schema.Properties["metadata"]; len(metadata.Properties) > 0 || metadata.Default != nil || len(metadata.XValidations) > 0 {
		return nil, nil
	}
	if schema.Properties = maps.Clone(schema.Properties); schema.Properties == nil {
		schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	for _, always := range []string{"apiVersion", "kind", "metadata"} { // checked by Plan
		schema.Properties[always] = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
	}
	subresources, err := apihelpers.GetSubresourcesForVersion(definition, version)
	if err != nil {
		return nil, fmt.Errorf("read the subresources of %s: %w", definition.Name, err)
	}
	s := &Schema{
		apiVersion: `"` + definition.Spec.Group + "/" + version + `"`, kind: `"` + definition.Status.AcceptedNames.Kind + `"`,
		root: newRule(&schema, false), hasStatus: subresources != nil && subresources.Status != nil,
		namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	if s.root.kinds != objects || s.root.free {
		return nil, nil
	}
	if subresources != nil && subresources.Scale != nil {
		s.scale = newScale(subresources.Scale)
	}
	s.rules, err = newCELRules(found.OpenAPIV3Schema)
	return s, err
}

// Planned is the result of a write.
type Planned struct {
	// Data is the JSON that is stored, without a resource version. It equals the previous one if nothing changes.
	Data []byte
	Name string
	// Generated is set if Name was generated.
	Generated bool
	// Deletes is set if the object is to be deleted, because it is without its last finalizer.
	Deletes bool
	// UID and ResourceVersion are those that the request has.
	UID             types.UID
	ResourceVersion string
}

// Plan returns what would be stored in place of an object, of which current is the JSON with the resource version, as the watch
// cache has it.
func (s *Schema) Plan(ctx context.Context, current []byte, w Write, now time.Time) (*Planned, error) {
	wanted, err := w.read()
	if err != nil {
		return nil, err
	}
	before := storedObject(current)
	u := &update{Schema: s, write: w, before: before, metadata: membersOf(before.get("metadata"))}
	if u.wanted, err = u.result(wanted); err != nil {
		return nil, err
	}
	sent, err := u.sentMetadata()
	if err == nil {
		err = checkMetadata(sent, u.metadata, w)
	}
	if err != nil {
		return nil, err
	}
	planned, err := u.plan(ctx, sent, map[string]string{}, now)
	if err == nil && u.metadata.get("deletionTimestamp") != "" {
		planned.Deletes = metadataFields["finalizers"].isEmpty(sent.get("finalizers"))
	}
	return planned, err
}

// storedObject reads the JSON of an object as the watch cache has it.
func storedObject(text []byte) members {
	return membersOf(strings.TrimSuffix(canonicaljson.StringOf(text), "\n"))
}

// read returns the object or the patch of a request.
func (w Write) read() (members, error) {
	if !utf8.ValidString(w.Manager) {
		return nil, errManagedFields
	}
	if w.Apply && !isPlainYAML(w.Body) {
		return nil, ErrBody
	}
	body, ok := canonicaljson.Append(make([]byte, 0, len(w.Body)+len(w.Body)/8), w.Body)
	if !ok || body[0] != '{' {
		return nil, ErrBody
	}
	return membersOf(canonicaljson.StringOf(body)), nil
}
