// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
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

// maxManagers is how many entries metadata.managedFields may have in a body. Upstream compares each with
// all fields that change.
const maxManagers = 1000

// checkMetadata refuses an object with too many owner references or managers before upstream decodes
// it: it compares them in pairs before any admission plugin is asked. Patches may have less than the
// object that they make, of which the plugin checks the owner references.
func (b *body) checkMetadata(req *http.Request, info *request.RequestInfo) error {
	if !info.IsResourceRequest {
		return nil
	}
	kind, contentType := schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}, req.Header.Get("Content-Type")
	if managers := entriesIn(contentType, b.content, managersField, maxManagers); managers > maxManagers {
		path := field.NewPath("metadata", managersField)
		return apierrors.NewInvalid(kind, info.Name, field.ErrorList{field.TooMany(path, managers, maxManagers)})
	}
	return ownerreferences.Check(kind, info.Name, entriesIn(contentType, b.content, ownersField, ownerreferences.MaxReferences), 0)
}

const (
	ownersField   = "ownerReferences"
	managersField = "managedFields"
)

// entriesIn returns the number of entries in a list of the metadata of an object in a body, or 0 if there
// are no more than few. What cannot be decoded has none: upstream refuses it.
func entriesIn(contentType string, body [][]byte, list string, few int) int {
	count := func(part string) (n int) {
		for _, chunk := range body {
			n += bytes.Count(chunk, []byte(part))
		}
		return n
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch {
	case strings.Contains(mediaType, "protobuf"):
		return entriesInProtobuf(bytes.Join(body, nil), list)
	case strings.Contains(mediaType, "cbor"):
		var object map[string]any
		_ = direct.Unmarshal(bytes.Join(body, nil), &object)
		found, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", list)
		entries, _ := found.([]any)
		return len(entries)
	case strings.Contains(mediaType, "yaml"):
		// Entries that differ have at least one field each.
		if count(":") <= few {
			return 0
		}
		data, err := yaml.ToJSON(bytes.Join(body, nil))
		if err != nil {
			return 0
		}
		return entriesInJSON(data, list)
	default:
		if count("{") <= few {
			return 0
		}
		return entriesInJSON(bytes.Join(body, nil), list)
	}
}

// entriesInJSON returns the largest number if there are several fields of the same name.
func entriesInJSON(data []byte, list string) (most int) {
	// A name is as it is, or escaped.
	if !bytes.Contains(data, []byte(list)) && !bytes.Contains(data, []byte(`\u`)) {
		return 0
	}
	eachField(data, "metadata", func(metadata json.RawMessage) {
		eachField(metadata, list, func(value json.RawMessage) {
			var entries []json.RawMessage
			_ = json.Unmarshal(value, &entries)
			most = max(most, len(entries))
		})
	})
	return most
}

// eachField calls read with each field of a name in an object.
func eachField(object []byte, name string, read func(json.RawMessage)) {
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
		if key == name {
			read(value)
		}
	}
}

// protobufMagic begins objects in protobuf.
var protobufMagic = []byte("k8s\x00")

func entriesInProtobuf(data []byte, list string) int {
	var unknown runtime.Unknown
	var object metav1.PartialObjectMetadata
	encoded, found := bytes.CutPrefix(data, protobufMagic)
	if !found || unknown.Unmarshal(encoded) != nil || object.Unmarshal(unknown.Raw) != nil {
		return 0
	}
	if list == managersField {
		return len(object.ManagedFields)
	}
	return len(object.OwnerReferences)
}
