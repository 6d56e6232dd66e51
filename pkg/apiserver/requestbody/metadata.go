// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
)

// checkOwners refuses an object with too many owner references before upstream decodes it:
// it compares them in pairs before any admission plugin is asked. Patches may have less than the
// object that they make, which the plugin checks.
func (b *body) checkOwners(req *http.Request, info *request.RequestInfo) error {
	if !info.IsResourceRequest {
		return nil
	}
	return ownerreferences.Check(schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}, info.Name, ownersIn(req.Header.Get("Content-Type"), b.content), 0)
}

// ownersIn returns the number of owner references of an object in a body, or 0 if there are few. What
// cannot be decoded has none: upstream refuses it.
func ownersIn(contentType string, body [][]byte) int {
	count := func(part string) (n int) {
		for _, chunk := range body {
			n += bytes.Count(chunk, []byte(part))
		}
		return n
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch {
	case strings.Contains(mediaType, "protobuf"):
		return ownersInProtobuf(bytes.Join(body, nil))
	case strings.Contains(mediaType, "cbor"):
		var object map[string]any
		_ = direct.Unmarshal(bytes.Join(body, nil), &object)
		references, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", "ownerReferences")
		list, _ := references.([]any)
		return len(list)
	case strings.Contains(mediaType, "yaml"):
		// References that differ have at least one field each.
		if count(":") <= ownerreferences.MaxReferences {
			return 0
		}
		data, err := yaml.ToJSON(bytes.Join(body, nil))
		if err != nil {
			return 0
		}
		return ownersInJSON(data)
	default:
		if count("{") <= ownerreferences.MaxReferences {
			return 0
		}
		return ownersInJSON(bytes.Join(body, nil))
	}
}

// ownersInJSON returns the largest number if there are several fields of the same name.
func ownersInJSON(data []byte) (most int) {
	// A name is as it is, or escaped.
	if !bytes.Contains(data, []byte("ownerReferences")) && !bytes.Contains(data, []byte(`\u`)) {
		return 0
	}
	eachField(data, "metadata", func(metadata json.RawMessage) {
		eachField(metadata, "ownerReferences", func(value json.RawMessage) {
			var references []json.RawMessage
			_ = json.Unmarshal(value, &references)
			most = max(most, len(references))
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
		field, err := decoder.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return
		}
		if field == name {
			read(value)
		}
	}
}

// protobufMagic begins objects in protobuf.
var protobufMagic = []byte("k8s\x00")

func ownersInProtobuf(data []byte) int {
	var unknown runtime.Unknown
	var object metav1.PartialObjectMetadata
	encoded, found := bytes.CutPrefix(data, protobufMagic)
	if !found || unknown.Unmarshal(encoded) != nil || object.Unmarshal(unknown.Raw) != nil {
		return 0
	}
	return len(object.OwnerReferences)
}
