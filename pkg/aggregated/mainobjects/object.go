// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainobjects

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// decodeObject returns an object as it is stored, in another version unless that is empty.
func decodeObject(raw []byte, version string) (move.Object, error) {
	decoded := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &decoded.Object); err != nil {
		return move.Object{}, fmt.Errorf("decode an object: %w", err)
	}
	key := cache.MetaObjectToName(decoded).String()
	revision, err := parseRevision(decoded.GetResourceVersion())
	if err != nil {
		return move.Object{}, fmt.Errorf("decode object %q: %w", key, err)
	}
	unstructured.RemoveNestedField(decoded.Object, "metadata", "resourceVersion")
	if version != "" {
		decoded.SetAPIVersion(decoded.GroupVersionKind().Group + "/" + version)
	}
	value, err := decoded.MarshalJSON()
	if err != nil {
		return move.Object{}, fmt.Errorf("encode object %q: %w", key, err)
	}
	return move.Object{Key: key, Value: value, Revision: revision}, nil
}

func parseRevision(version string) (int64, error) {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resource version %q is not a revision", version)
	}
	return revision, nil
}
