// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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
	// errDeleting is returned for objects that are being deleted and lose their last finalizer, or gain one.
	errDeleting Unsure = "deleting"
)

// Write is a request that updates an object.
type Write struct {
	// Body is the whole object, or, with Patch, a JSON merge patch.
	Body  []byte
	Patch bool
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
	// hasStatus is set if the status is a subresource.
	hasStatus bool
	scale     *scale    // nil if there is no such subresource
	rules     *celRules // nil without any
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
		schema.Properties[always] = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: ptr.To(true)}
	}
	subresources, err := apihelpers.GetSubresourcesForVersion(definition, version)
	if err != nil {
		return nil, fmt.Errorf("read the subresources of %s: %w", definition.Name, err)
	}
	s := &Schema{
		apiVersion: `"` + definition.Spec.Group + "/" + version + `"`, kind: `"` + definition.Status.AcceptedNames.Kind + `"`,
		root: newRule(&schema, false), hasStatus: subresources != nil && subresources.Status != nil,
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
	// UID and ResourceVersion are those that the request has.
	UID             types.UID
	ResourceVersion string
}

// Plan returns what would be stored in place of an object, of which current is the JSON with the resource version, as the watch
// cache has it.
func (s *Schema) Plan(ctx context.Context, current []byte, w Write, now time.Time) (*Planned, error) {
	if !utf8.ValidString(w.Manager) {
		return nil, errManagedFields
	}
	body, ok := canonicaljson.Append(make([]byte, 0, len(w.Body)+len(w.Body)/8), w.Body)
	if !ok || body[0] != '{' {
		return nil, ErrBody
	}
	before := membersOf(strings.TrimSuffix(canonicaljson.StringOf(current), "\n"))
	wanted := membersOf(canonicaljson.StringOf(body))
	if w.Patch {
		if wanted, ok = mergeMembers(before, wanted); !ok {
			return nil, ErrBody
		}
	}
	if before.get(listField)+wanted.get(listField) != "" {
		return nil, errSchema
	}
	if wanted.get("apiVersion") != s.apiVersion || wanted.get("kind") != s.kind || wanted.get("metadata") == "" || wanted.get("metadata")[0] != '{' {
		return nil, errIdentity
	}
	u := &update{Schema: s, write: w, before: before, wanted: wanted, metadata: membersOf(before.get("metadata"))}
	return u.plan(ctx, now)
}

// update is a write with the object that it updates.
type update struct {
	*Schema
	write          Write
	before, wanted members
	metadata       members // of the stored object
	diff           diff
}

func (u *update) plan(ctx context.Context, now time.Time) (*Planned, error) {
	wanted := membersOf(u.wanted.get("metadata"))
	if err := checkMetadata(wanted, u.metadata, u.write); err != nil {
		return nil, err
	}
	changes := map[string]string{}
	var content members
	var err error
	if u.write.Status {
		content, err = u.withStatus()
	} else if content, err = u.withContent(); err == nil {
		err = u.setMetadata(wanted, content, changes)
	}
	if err != nil {
		return nil, err
	}
	if u.diff.unsure {
		return nil, errManagedFields
	}
	if changes["managedFields"], err = u.managedFields(u.metadata.get("managedFields"), &u.diff, u.write, now); err != nil {
		return nil, err
	}
	content = append(content, member{"apiVersion", u.apiVersion}, member{"kind", u.kind}, member{"metadata", newMetadata(u.metadata, changes)})
	planned := content.encode()
	if !u.root.check(planned) || !u.scale.check(planned) {
		return nil, errSchema
	}
	if err := u.rules.validate(ctx, planned, u.before); err != nil {
		return nil, err
	}
	return &Planned{
		Data: append(planned, '\n'), UID: types.UID(unquoted(cmp.Or(wanted.get("uid"), `""`))), ResourceVersion: unquoted(wanted.get("resourceVersion")),
	}, nil
}

// isContent reports whether a field is content that a write of the whole object replaces.
func (u *update) isContent(m member) bool {
	return m.key != "apiVersion" && m.key != "kind" && m.key != "metadata" && (m.key != "status" || !u.hasStatus)
}

// only returns the members for which keep is true, with room for those that all objects have, and the status.
func (m members) only(keep func(member) bool) members {
	kept := make(members, 0, len(m)+4)
	for i := range m {
		if keep(m[i]) {
			kept = append(kept, m[i])
		}
	}
	return kept
}

// withContent returns the content of the request, with the stored status if that is a subresource.
func (u *update) withContent() (members, error) {
	before, content := u.before.only(u.isContent), u.wanted.only(u.isContent)
	u.diff.objects(u.root, before, content)
	if !u.hasStatus {
		return content, nil
	}
	stored, sent := u.before.get("status"), u.wanted.get("status")
	if sent != "" && sent != stored && !u.isUnchanged("status", sent) {
		return nil, errSchema // upstream warns of unknown fields
	}
	if stored != "" {
		content = append(content, member{"status", stored})
	}
	return content, nil
}

// withStatus returns the stored content with the status of the request.
func (u *update) withStatus() (members, error) {
	if !u.hasStatus {
		return nil, errSchema
	}
	stored, sent := u.before.get("spec"), u.wanted.get("spec")
	if sent != "" && sent != stored && !u.isUnchanged("spec", sent) {
		return nil, errSchema
	}
	isOther := func(m member) bool { return u.isContent(m) && m.key != "spec" }
	if !slices.Equal(u.before.only(isOther), u.wanted.only(isOther)) {
		return nil, errManagedFields // upstream drops the changes, but gives them to the manager
	}
	content, status := u.before.only(u.isContent), u.wanted.get("status")
	u.diff.below(u.root.child("status"), "f:status", u.before.get("status"), status)
	if status != "" {
		content = append(content, member{"status", status})
	}
	return content, nil
}

// isUnchanged reports whether pruning and defaulting do not change a field that is not stored.
func (u *update) isUnchanged(name, text string) bool {
	r := u.root.child(name)
	return r != nil && r.check([]byte(text))
}

// setMetadata sets the metadata that a write of the whole object changes: what is editable, and the generation.
func (u *update) setMetadata(wanted, content members, changes map[string]string) error {
	edited := make(members, 0, len(editable))
	changed := false
	u.diff.at = append(u.diff.at, "f:metadata")
	for name, rule := range editable {
		stored, sent := u.metadata.get(name), wanted.get(name)
		if metadataFields[name].isEmpty(sent) {
			sent = ""
		} else {
			edited = append(edited, member{name, sent})
		}
		changes[name] = sent
		changed = changed || stored != sent
		u.diff.below(rule, "f:"+name, stored, sent)
	}
	u.diff.at = u.diff.at[:0]
	if changed {
		if err := validateMetadata(edited); err != nil {
			return err
		}
	}
	// The status of content is the stored one if it is a subresource.
	if !slices.Equal(u.before.only(u.isContent), content.only(u.isContent)) {
		generation, err := strconv.ParseInt(cmp.Or(u.metadata.get("generation"), "0"), 10, 64)
		if err != nil {
			return errMetadata
		}
		changes["generation"] = strconv.FormatInt(generation+1, 10)
	}
	return nil
}
