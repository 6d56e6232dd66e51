// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainobjects

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// decodeObject returns an object as it is stored.
func decodeObject(raw []byte) (move.Object, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return move.Object{}, fmt.Errorf("decode an object: %w", err)
	}
	decoded := &unstructured.Unstructured{Object: content}
	key := decoded.GetName()
	if namespace := decoded.GetNamespace(); namespace != "" {
		key = namespace + "/" + key
	}
	revision, err := parseRevision(decoded.GetResourceVersion())
	if err != nil {
		return move.Object{}, fmt.Errorf("decode object %q: %w", key, err)
	}
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	value, err := decoded.MarshalJSON()
	if err != nil {
		return move.Object{}, fmt.Errorf("encode object %q: %w", key, err)
	}
	return move.Object{Key: key, Value: value, Revision: revision}, nil
}

// inVersion returns the value of an object in another version.
func inVersion(o move.Object, version schema.GroupVersion) ([]byte, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(o.Value, &content); err != nil {
		return nil, fmt.Errorf("decode object %q: %w", o.Key, err)
	}
	decoded := &unstructured.Unstructured{Object: content}
	decoded.SetAPIVersion(version.String())
	value, err := decoded.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode object %q: %w", o.Key, err)
	}
	return value, nil
}

func parseRevision(version string) (int64, error) {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resource version %q is not a revision", version)
	}
	return revision, nil
}
