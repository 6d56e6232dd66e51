// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
)

// maxManagers bounds the entries of metadata.managedFields in a body. Upstream compares each with
// all fields that change.
const maxManagers = 1000

// checkMetadata refuses an object with too many owner references or managers before upstream decodes
// it: it compares them in pairs before any admission plugin is called. Patches may have less than the
// object that they make, of which the plugin checks the owner references.
func (b *body) checkMetadata(req *http.Request, info *request.RequestInfo) error {
	if !info.IsResourceRequest {
		return nil
	}
	kind, has := schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}, entriesIn(req.Header.Get("Content-Type"), b.content)
	if has.managers > maxManagers {
		path := field.NewPath("metadata", managersField)
		return apierrors.NewInvalid(kind, info.Name, field.ErrorList{field.TooMany(path, has.managers, maxManagers)})
	}
	return ownerreferences.Check(kind, info.Name, has.owners, 0)
}

const (
	ownersField   = "ownerReferences"
	managersField = "managedFields"
)

// entries has the lengths of lists in the metadata of an object.
type entries struct{ owners, managers int }

// entriesIn returns those of an object in a body, or 0 if there are few. What cannot be decoded has none:
// upstream refuses it.
func entriesIn(contentType string, body [][]byte) entries {
	// Entries that differ have at least one field each.
	isFew := func(part string) bool {
		count := 0
		for _, chunk := range body {
			count += bytes.Count(chunk, []byte(part))
		}
		return count <= ownerreferences.MaxReferences
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch {
	case strings.Contains(mediaType, "protobuf"):
		return entriesInProtobuf(bytes.Join(body, nil))
	case strings.Contains(mediaType, "cbor"):
		return entriesInCBOR(bytes.Join(body, nil))
	case strings.Contains(mediaType, "yaml"):
		if isFew(":") {
			return entries{}
		}
		data, err := yaml.ToJSON(bytes.Join(body, nil))
		if err != nil {
			return entries{}
		}
		return entriesInJSON(data)
	case isFew("{"):
		return entries{}
	default:
		return entriesInJSON(bytes.Join(body, nil))
	}
}

// entriesInJSON returns the largest number if there are several fields of the same name.
func entriesInJSON(data []byte) (most entries) {
	// A name is as it is, or escaped.
	if !slices.ContainsFunc([]string{ownersField, managersField, `\u`}, func(part string) bool { return bytes.Contains(data, []byte(part)) }) {
		return entries{}
	}
	eachField(data, func(name string, metadata json.RawMessage) {
		if name != "metadata" {
			return
		}
		eachField(metadata, func(name string, list json.RawMessage) {
			switch name {
			case ownersField:
				most.owners = max(most.owners, length(list))
			case managersField:
				most.managers = max(most.managers, length(list))
			}
		})
	})
	return most
}

func length(list json.RawMessage) int {
	var entries []json.RawMessage
	_ = json.Unmarshal(list, &entries)
	return len(entries)
}

// eachField calls read with each field of an object.
func eachField(object []byte, read func(name string, value json.RawMessage)) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return
		}
		name, _ := key.(string)
		read(name, value)
	}
}

func entriesInCBOR(data []byte) entries {
	var object map[string]any
	_ = direct.Unmarshal(data, &object)
	count := func(list string) int {
		found, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", list)
		entries, _ := found.([]any)
		return len(entries)
	}
	return entries{owners: count(ownersField), managers: count(managersField)}
}

// protobufMagic begins objects in protobuf.
var protobufMagic = []byte("k8s\x00")

func entriesInProtobuf(data []byte) entries {
	var unknown runtime.Unknown
	var object metav1.PartialObjectMetadata
	encoded, found := bytes.CutPrefix(data, protobufMagic)
	if !found || unknown.Unmarshal(encoded) != nil || object.Unmarshal(unknown.Raw) != nil {
		return entries{}
	}
	return entries{owners: len(object.OwnerReferences), managers: len(object.ManagedFields)}
}
