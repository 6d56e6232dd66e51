// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// update is a write with the object that it updates, which has no members if the write creates it.
type update struct {
	*Schema
	write          Write
	before, wanted members
	metadata       members // of the stored object
	diff           diff
	applies        string // the fields of the apply configuration, if it is one
}

func (u *update) isNew() bool { return u.before == nil }

// result returns the object that is wanted, for a body.
func (u *update) result(body members) (members, error) {
	switch {
	case u.write.Apply:
		return u.applied(body)
	case u.write.Patch:
		merged, ok := mergeMembers(u.before, body)
		if !ok {
			return nil, ErrBody
		}
		return merged, nil
	}
	return body, nil
}

// sentMetadata returns the metadata of the object that is wanted.
func (u *update) sentMetadata() (members, error) {
	if u.before.get(listField)+u.wanted.get(listField) != "" {
		return nil, errSchema
	}
	return u.metadataOf(u.wanted)
}

// metadataOf returns the metadata of an object, or an error if it has another kind.
func (s *Schema) metadataOf(object members) (members, error) {
	metadata := object.get("metadata")
	if object.get("apiVersion") != s.apiVersion || object.get("kind") != s.kind || metadata == "" || metadata[0] != '{' {
		return nil, errIdentity
	}
	return membersOf(metadata), nil
}

// plan plans a write with metadata that was checked, of which changes has what the server sets.
func (u *update) plan(ctx context.Context, sent members, changes map[string]string, now time.Time) (*Planned, error) {
	content, err := u.content()
	if err == nil && !u.write.Status {
		err = u.setMetadata(sent, content, changes)
	}
	if err != nil {
		return nil, err
	}
	if u.diff.unsure {
		return nil, errManagedFields
	}
	if changes["managedFields"], err = u.managedFields(now); err != nil {
		return nil, err
	}
	if u.write.Apply && u.changesOnlyTimes(content, changes) {
		changes["managedFields"] = u.metadata.get("managedFields")
	}
	planned := u.encodeObject(content, newMetadata(u.metadata, changes))
	if !u.root.check(planned) || !u.scale.check(planned) {
		return nil, errSchema
	}
	if err := u.rules.validate(ctx, planned, u.before); err != nil {
		return nil, err
	}
	return &Planned{
		Data: append(planned, '\n'), Name: textOf(sent, "name"), UID: types.UID(textOf(sent, "uid")), ResourceVersion: textOf(sent, "resourceVersion"),
	}, nil
}

// encodeObject returns the JSON of an object.
func (s *Schema) encodeObject(content members, metadata string) []byte {
	return append(content, member{"apiVersion", s.apiVersion}, member{"kind", s.kind}, member{"metadata", metadata}).encode()
}

// content returns what is stored besides apiVersion, kind and metadata, and compares it with what is. Upstream adds defaults
// after it has compared an apply configuration, and before it compares any other object.
func (u *update) content() (content members, err error) {
	if !u.write.Apply {
		u.wanted = u.root.addDefaults(u.wanted)
	}
	if u.write.Status {
		content, err = u.withStatus()
	} else {
		content, err = u.withContent()
	}
	if err == nil && u.write.Apply {
		content = u.root.addDefaults(content)
	}
	return content, err
}

// textOf returns a string of metadata that was checked.
func textOf(metadata members, name string) string { return unquoted(cmp.Or(metadata.get(name), `""`)) }

// isContent reports whether a field is content that a write of the whole object replaces.
func (u *update) isContent(m member) bool {
	return m.isContent() && (m.key != "status" || !u.hasStatus)
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
	u.diff.below(anything, "f:generateName", "", changes["generateName"]) // of a new object
	u.diff.at = u.diff.at[:0]
	if changed {
		if err := validateMetadata(edited); err != nil {
			return err
		}
	}
	// The status of content is the stored one if it is a subresource.
	if !slices.Equal(u.before.only(u.isContent), content.only(u.isContent)) {
		generation, err := generationOf(u.metadata)
		if err != nil {
			return err
		}
		changes["generation"] = strconv.FormatInt(generation+1, 10)
	}
	return nil
}
