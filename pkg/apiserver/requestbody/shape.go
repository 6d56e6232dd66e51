// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

const (
	// maxManagers bounds the entries of metadata.managedFields in a body. Upstream compares each with
	// all fields that change.
	maxManagers = 1000
	// maxMerged bounds the items in lists of a strategic merge patch, and in lists of the patched object:
	// upstream compares all in pairs.
	maxMerged = 2000
	// maxOperations bounds the operations of a JSON patch of an object with long lists: each may copy one,
	// or add an item.
	maxOperations = 100
	// maxLevels bounds the levels of all paths to which a JSON patch copies or moves values.
	maxLevels = 32
	// maxAliased bounds how many times larger aliases make YAML that is not small.
	maxAliased, smallAliased = 4, 1 << 20
	// smallProtobuf is too small for lists with too many items.
	smallProtobuf = 64 << 10
)

// shape has what may take upstream much more work than the size of a body.
type shape struct {
	entries
	// refusal says why it certainly does, or is empty.
	refusal string
	// items bounds the items in lists of the object that is patched, if it is not 0.
	items int64
}

// checkShape refuses a body that takes upstream much more work than its size, before upstream decodes it:
// nothing ends that work when the request times out. A patch may have less than the object that it
// makes, which the admission plugins and the storage check. items bounds the items in lists of the object
// that a patch changes, if it is not 0.
func (b *body) checkShape(mediaType string, info *request.RequestInfo, serializer runtime.NegotiatedSerializer) (items int64, err error) {
	of, err := b.shape(mediaType, func() (objectsize.AssociativeLists, error) { return b.limits.Lists(info) }, serializer)
	if err != nil {
		return 0, err
	}
	if of.items == 0 && info.Verb == "patch" && b.limits.Small(info.APIGroup) {
		of.items = objectsize.MaxItems // the storage does not check them
	}
	kind := schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}
	switch {
	case of.refusal != "":
		return 0, apierrors.NewRequestEntityTooLargeError("the request would take too long: " + of.refusal)
	case of.managers > maxManagers:
		path := field.NewPath("metadata", managersField)
		return 0, apierrors.NewInvalid(kind, info.Name, field.ErrorList{field.TooMany(path, of.managers, maxManagers)})
	}
	return of.items, ownerreferences.Check(kind, info.Name, of.owners, 0)
}

// shape returns an empty one for what cannot be decoded: upstream refuses it.
func (b *body) shape(mediaType string, lists listsFunc, serializer runtime.NegotiatedSerializer) (of shape, err error) {
	switch {
	case strings.Contains(mediaType, "protobuf"):
		return shapeOfProtobuf(bytes.Join(b.content, nil), serializer)
	case strings.Contains(mediaType, "cbor"):
		var object any
		_ = direct.Unmarshal(bytes.Join(b.content, nil), &object)
		return shapeOfObject(object, lists)
	case mediaType == string(types.JSONPatchType):
		return shapeOfJSONPatch(bytes.Join(b.content, nil), b.values), nil
	case strings.Contains(mediaType, "yaml") && b.values.IsYAML():
		return shapeOfYAML(bytes.Join(b.content, nil), lists)
	}
	of, err = shapeOfJSON(b.content, b.values, lists)
	if items := b.values.Items(); mediaType == string(types.StrategicMergePatchType) && items > 0 {
		if of.items = maxMerged; items > maxMerged {
			of.refusal = fmt.Sprintf("a strategic merge patch may have lists of %d items", maxMerged)
		}
	}
	return of, err
}

// listsFunc returns the lists of type set or map in the resource of a request.
type listsFunc func() (objectsize.AssociativeLists, error)

func shapeOfJSON(text [][]byte, values objectsize.Values, lists listsFunc) (of shape, err error) {
	if of.refusal = values.Refusal(); of.refusal != "" {
		return of, nil
	}
	objects := 0
	for _, chunk := range text {
		objects += bytes.Count(chunk, []byte("{"))
	}
	isLong := values.Items() > objectsize.MaxItems
	// Entries that differ have at least a field each.
	if objects <= ownerreferences.MaxReferences && !isLong {
		return of, nil
	}
	whole := bytes.Join(text, nil)
	of.entries = entriesInJSON(whole)
	if isLong {
		found, err := lists()
		if err != nil {
			return of, fmt.Errorf("look for lists of type set and map: %w", err)
		}
		of.refusal = found.Refusal(whole)
	}
	return of, nil
}

func shapeOfYAML(text []byte, lists listsFunc) (of shape, err error) {
	if expanded := objectsize.ExpandedYAML(text); expanded > maxAliased*int64(len(text))+smallAliased {
		of.refusal = fmt.Sprintf("the aliases in its YAML stand for %d bytes", expanded)
		return of, nil
	}
	converted, _ := yaml.YAMLToJSON(text)
	return shapeOfText(converted, lists)
}

func shapeOfObject(object any, lists listsFunc) (of shape, err error) {
	text, err := json.Marshal(object)
	if err != nil {
		return of, apierrors.NewBadRequest(fmt.Sprintf("encode the object as JSON: %v", err))
	}
	return shapeOfText(text, lists)
}

func shapeOfText(text []byte, lists listsFunc) (shape, error) {
	values := objectsize.Values{IsJSON: true}
	values.Add(text)
	return shapeOfJSON([][]byte{text}, values, lists)
}

// shapeOfJSONPatch adds the depth of what a patch makes to the values in it.
func shapeOfJSONPatch(text []byte, values objectsize.Values) (of shape) {
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return of
	}
	levels := 0
	for _, operation := range patch {
		path, _ := operation.Path()
		depth := strings.Count(path, "/")
		if kind := operation.Kind(); kind == "copy" || kind == "move" {
			levels += max(1, depth)
			if depth < 2 || strings.HasPrefix(path, managersPath) {
				of.refusal = fmt.Sprintf("a JSON patch may not copy or move anything to %q", path)
				return of
			}
		}
		if value := operation["value"]; value != nil {
			values.Nest(int64(len(*value)), int64(depth))
			of.managers += managersAt(path, *value)
		}
	}
	if levels > 0 || len(patch) > maxOperations {
		of.items = max(maxOperations, objectsize.MaxItems-int64(len(patch)))
	}
	switch {
	case levels > maxLevels:
		of.refusal = fmt.Sprintf("the paths to which a JSON patch copies or moves have %d levels, the limit is %d", levels, maxLevels)
	case values.Items() > objectsize.MaxItems:
		of.refusal = fmt.Sprintf("a JSON patch may have lists of %d items", objectsize.MaxItems)
	default:
		of.refusal = values.Refusal()
	}
	return of
}

const managersPath = "/metadata/" + managersField

// managersAt returns how many managers a value at a path has.
func managersAt(path string, value json.RawMessage) int {
	switch {
	case path == "":
		return entriesInJSON(value).managers
	case path == "/metadata":
		return entriesInMetadata(value).managers
	case path == managersPath:
		return length(value)
	case strings.HasPrefix(path, managersPath):
		return 1
	}
	return 0
}

// shapeOfProtobuf checks the metadata, and all of a large object.
func shapeOfProtobuf(data []byte, serializer runtime.NegotiatedSerializer) (of shape, err error) {
	of.entries = entriesInProtobuf(data)
	info, ok := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if len(data) < smallProtobuf || !ok {
		return of, nil
	}
	// Upstream could take a kind that is missing from the path. It refuses one that is not registered, except
	// definitions and APIServices, which have schemes of their own.
	object, _, err := info.Serializer.Decode(data, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return of, nil
	}
	if err != nil {
		return of, apierrors.NewBadRequest(fmt.Sprintf("decode an object in protobuf by the kind that it names: %v", err))
	}
	return shapeOfObject(object, func() (objectsize.AssociativeLists, error) { return objectsize.NewAssociativeLists(nil), nil })
}
