// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
	"github.com/annex-dev/annex/pkg/storage/objectsize"
)

const (
	// maxManagers bounds the entries of metadata.managedFields in a body. Upstream compares each with
	// all fields that change.
	maxManagers = 1000
	// maxMerged bounds the items in lists of a strategic merge patch, and in those of the object: upstream
	// compares all in pairs.
	maxMerged = 2000
	// maxOperations bounds the operations of a JSON patch of an object with long lists: each may copy one,
	// or add an item.
	maxOperations = 100
	// maxLevels bounds the levels of all paths to which a JSON patch copies or moves values.
	maxLevels = 32
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
// nothing ends that work when the request times out. Patches may have less than the object that they
// make, which the admission plugins and the storage check. The request that is returned has a limit for
// the object that it patches.
func (b *body) checkShape(req *http.Request, info *request.RequestInfo, limits BodyLimits, serializer runtime.NegotiatedSerializer) (*http.Request, error) {
	if !info.IsResourceRequest {
		return req, nil
	}
	mediaType, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	of, err := b.shape(mediaType, func() (objectsize.AssociativeLists, error) { return limits.Lists(info) }, serializer)
	if err != nil {
		return nil, err
	}
	if of.items == 0 && info.Verb == "patch" && limits.Small(info.APIGroup) {
		of.items = objectsize.MaxItems // the storage does not check them
	}
	kind := schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}
	switch {
	case of.refusal != "":
		return nil, tooMuchWork(of.refusal)
	case of.managers > maxManagers:
		path := field.NewPath("metadata", managersField)
		return nil, apierrors.NewInvalid(kind, info.Name, field.ErrorList{field.TooMany(path, of.managers, maxManagers)})
	case of.items > 0:
		refusal := tooMuchWork(fmt.Sprintf("the object has lists of more than %d items: replace it, or use a smaller patch", of.items))
		req = req.WithContext(objectsize.WithListLimit(req.Context(), of.items, refusal))
	}
	return req, ownerreferences.Check(kind, info.Name, of.owners, 0)
}

func tooMuchWork(reason string) error {
	return apierrors.NewRequestEntityTooLargeError("the request would take too long: " + reason)
}

// shape returns an empty one for what cannot be decoded: upstream refuses it.
func (b *body) shape(mediaType string, lists func() (objectsize.AssociativeLists, error), serializer runtime.NegotiatedSerializer) (of shape, err error) {
	values, text := &b.values, []byte(nil)
	switch {
	case strings.Contains(mediaType, "protobuf"):
		return shapeOfProtobuf(bytes.Join(b.content, nil), serializer)
	case strings.Contains(mediaType, "cbor"):
		return shape{entries: entriesInCBOR(bytes.Join(b.content, nil))}, nil
	case mediaType == string(types.JSONPatchType):
		return shapeOfJSONPatch(bytes.Join(b.content, nil), b.values), nil
	case mediaType == string(types.StrategicMergePatchType):
		if items := values.Items(); items > maxMerged {
			of.refusal = fmt.Sprintf("a strategic merge patch may have lists of %d items", maxMerged)
		} else if items > 0 {
			of.items = maxMerged
		}
	case strings.Contains(mediaType, "yaml") && values.IsYAML():
		if text, err = yaml.YAMLToJSON(bytes.Join(b.content, nil)); err != nil {
			return of, nil
		}
		values = &objectsize.Values{IsJSON: true}
		values.Add(text)
	}
	if of.refusal == "" {
		of.refusal = values.Refusal()
	}
	isLong := values.Items() > objectsize.MaxItems
	if of.refusal != "" || !isLong && text == nil && b.count("{") <= ownerreferences.MaxReferences {
		return of, nil // entries that differ have at least a field each
	}
	if text == nil {
		text = bytes.Join(b.content, nil)
	}
	if isLong {
		found, err := lists()
		if err != nil {
			return of, fmt.Errorf("look for lists of type set and map: %w", err)
		}
		of.refusal = found.Refusal(text)
	}
	of.entries = entriesInJSON(text)
	return of, nil
}

func (b *body) count(part string) (count int) {
	for _, chunk := range b.content {
		count += bytes.Count(chunk, []byte(part))
	}
	return count
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

// shapeOfProtobuf counts the items in lists of a large object too.
func shapeOfProtobuf(data []byte, serializer runtime.NegotiatedSerializer) (of shape, err error) {
	of.entries = entriesInProtobuf(data)
	info, ok := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if len(data) < smallProtobuf || !ok {
		return of, nil
	}
	// Upstream could take the kind from the path.
	object, _, err := info.Serializer.Decode(data, nil, nil)
	if err != nil {
		return of, apierrors.NewBadRequest(fmt.Sprintf("decode an object in protobuf by the kind that it names: %v", err))
	}
	text, err := json.Marshal(object)
	if err != nil {
		return of, fmt.Errorf("count the items of lists: %w", err)
	}
	values := objectsize.Values{IsJSON: true}
	if values.Add(text); values.Items() > objectsize.MaxItems {
		of.refusal = objectsize.NewAssociativeLists(nil).Refusal(text)
	}
	return of, nil
}
