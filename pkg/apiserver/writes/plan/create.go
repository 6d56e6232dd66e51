// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/names"
)

// Create returns what would be stored for a new object with a UID in a namespace, "" for none.
func (s *Schema) Create(ctx context.Context, w Write, namespace string, uid types.UID, now time.Time) (*Planned, error) {
	wanted, err := w.read()
	if err != nil {
		return nil, err
	}
	u := &update{Schema: s, write: w, wanted: wanted}
	sent, err := u.sentMetadata()
	if err != nil {
		return nil, err
	}
	sent, prefix, err := named(sent)
	if err == nil {
		err = s.checkNewMetadata(sent, namespace)
	}
	if err != nil {
		return nil, err
	}
	given := map[string]string{
		"name": sent.get("name"), "generateName": prefix, "uid": `"` + string(uid) + `"`, "generation": "1", "creationTimestamp": `"` + now.UTC().Format(time.RFC3339) + `"`,
	}
	if s.namespaced {
		given["namespace"] = `"` + namespace + `"`
	}
	planned, err := u.plan(ctx, sent, given, now)
	if err == nil {
		planned.Generated = prefix != ""
	}
	return planned, err
}

// named returns metadata with a name, as upstream generates it from a prefix, which is removed. The prefix is "" for none.
func named(sent members) (named members, prefix string, err error) {
	prefix, name := sent.get("generateName"), sent.get("name")
	if metadataFields["generateName"].isEmpty(prefix) {
		return sent, "", nil
	}
	if prefix[0] != '"' || len(apivalidation.NameIsDNSSubdomain(unquoted(prefix), true)) > 0 || name != "" && name != `""` {
		return nil, "", errMetadata
	}
	others := sent.only(func(m member) bool { return m.key != "name" && m.key != "generateName" })
	return append(others, member{"name", `"` + names.SimpleNameGenerator.GenerateName(unquoted(prefix)) + `"`}), prefix, nil
}

// checkNewMetadata returns an error unless the metadata of a new object has no more than a name and what is editable.
func (s *Schema) checkNewMetadata(sent members, namespace string) error {
	for _, m := range sent {
		field, known := metadataFields[m.key]
		switch {
		case !known:
			return errMetadata
		case m.key == "name" || field.isEmpty(m.value):
		case m.key == "namespace" && s.namespaced && m.value == `"`+namespace+`"`:
		case editable[m.key] != nil && editable[m.key].check([]byte(m.value)):
		default:
			return errMetadata
		}
	}
	name := sent.get("name")
	if len(name) < len(`""`) || name[0] != '"' || len(apivalidation.NameIsDNSSubdomain(unquoted(name), false)) > 0 {
		return errMetadata
	}
	return nil
}
