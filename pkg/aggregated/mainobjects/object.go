// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainobjects

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// decodeObject returns an object as it is stored, and its revision.
func decodeObject(raw []byte) (move.Object, int64, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return move.Object{}, 0, fmt.Errorf("decode an object: %w", err)
	}
	decoded := &unstructured.Unstructured{Object: content}
	key := decoded.GetName()
	if namespace := decoded.GetNamespace(); namespace != "" {
		key = namespace + "/" + key
	}
	revision, err := parseRevision(decoded.GetResourceVersion())
	if err != nil {
		return move.Object{}, 0, fmt.Errorf("decode object %q: %w", key, err)
	}
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	value, err := decoded.MarshalJSON()
	if err != nil {
		return move.Object{}, 0, fmt.Errorf("encode object %q: %w", key, err)
	}
	return move.Object{Key: key, Value: value}, revision, nil
}

func parseRevision(version string) (int64, error) {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resource version %q is not a revision", version)
	}
	return revision, nil
}
