// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	ownersField   = "ownerReferences"
	managersField = "managedFields"
)

// entries has the lengths of lists in the metadata of an object.
type entries struct{ owners, managers int }

// entriesInJSON returns the entries of an object. If there are several fields of the same name, the longest
// list counts.
func entriesInJSON(data []byte) (most entries) {
	// A name is as it is, or escaped.
	if !slices.ContainsFunc([]string{ownersField, managersField, `\u`}, func(part string) bool { return bytes.Contains(data, []byte(part)) }) {
		return entries{}
	}
	eachField(data, func(name string, metadata json.RawMessage) {
		if name == "metadata" {
			found := entriesInMetadata(metadata)
			most = entries{owners: max(most.owners, found.owners), managers: max(most.managers, found.managers)}
		}
	})
	return most
}

func entriesInMetadata(metadata []byte) (most entries) {
	eachField(metadata, func(name string, list json.RawMessage) {
		switch name {
		case ownersField:
			most.owners = max(most.owners, length(list))
		case managersField:
			most.managers = max(most.managers, length(list))
		}
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
