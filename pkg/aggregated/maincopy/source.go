// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// pages is a client of the API server of Sources.
type pages struct {
	rest.Interface
	// of names its cluster.
	of string
	// questions shares the requests of watches that are in flight.
	questions singleflight.Group
}

// Source reads the objects of a custom resource from an API server, for a copy of them: pages at an exact revision or at
// the present, and a watch. A value is as an API server of custom resources stores it: canonical JSON without
// the resource version, and with all other fields as the main cluster has them.
type Source struct {
	client   *pages
	resource schema.GroupVersionResource
	// stored is the version of values, if they are read in another one.
	stored string
}

var _ move.Source = &Source{}

// newPages returns a client for Sources, whose errors name their cluster: without a limit of its own, and without
// compression, which costs more than it saves within a cluster.
func newPages(config *rest.Config, of string) (*pages, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, 0
	config.DisableCompression = true
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the Status of a failed request
	config.GroupVersion, config.NegotiatedSerializer = nil, serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client of %s: %w", of, err)
	}
	return &pages{Interface: client, of: of}, nil
}

// InMain returns the objects of a resource that the main cluster serves.
func (c *Copy) InMain(resource schema.GroupVersionResource) *Source {
	return &Source{client: c.mainPages, resource: resource}
}

// Opened returns the objects of an open copy, without conversion.
func (c *Copy) Opened(resource Resource) *Source {
	return &Source{client: c.mainPages, resource: resource.Opened(), stored: resource.Stored.Version}
}

// InAnnex returns the objects of a resource that annex serves.
func (c *Copy) InAnnex(resource schema.GroupVersionResource) *Source {
	return &Source{client: c.annexPages, resource: resource}
}

func (s *Source) request() *rest.Request {
	return s.client.Get().AbsPath("/apis", s.resource.Group, s.resource.Version, s.resource.Resource).
		SetHeader("Accept", runtime.ContentTypeJSON)
}

// Count implements move.Source.
func (s *Source) Count(ctx context.Context) (int64, error) {
	list, err := s.list(ctx, s.request().Param("limit", "1"))
	return int64(len(list.Items)) + ptr.Deref(list.RemainingItemCount, 0), err
}

// Revision implements move.Source, with a consistent read.
func (s *Source) Revision(ctx context.Context) (int64, error) {
	list, err := s.list(ctx, s.request().Param("limit", "1"))
	if err != nil {
		return 0, err
	}
	return parseRevision(list.ResourceVersion)
}

// present is the revision of a continue token that continues at the present.
const present = -1

// Page implements move.Source. A revision of 0 is the present, with a consistent read.
func (s *Source) Page(ctx context.Context, after string, limit, revision int64) (objects []move.Object, more bool, err error) {
	request := s.request().Param("limit", strconv.FormatInt(limit, 10))
	switch {
	case after == "" && revision > 0:
		request.Param("resourceVersion", strconv.FormatInt(revision, 10)).
			Param("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	case after != "":
		// The API server reads from this key on.
		next, err := storage.EncodeContinue("/"+after+"\x00", "/", cmp.Or(revision, present))
		if err != nil {
			return nil, false, fmt.Errorf("encode the place after %s of %s: %w", after, s.resource, err)
		}
		request.Param("continue", next)
	}
	list, err := s.list(ctx, request)
	if err != nil {
		return nil, false, err
	}
	if !slices.IsSortedFunc(list.objects, func(a, b move.Object) int { return strings.Compare(a.Key, b.Key) }) {
		return nil, false, s.failed("list", errors.New("the objects are not in the order of their keys"))
	}
	return list.objects, list.Continue != "", nil
}

// Decode implements move.Source. Values are read decoded.
func (s *Source) Decode(_ context.Context, o move.Object) ([]byte, error) { return o.Value, nil }

type list struct {
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage
	objects         []move.Object
}

func (s *Source) list(ctx context.Context, request *rest.Request) (l list, err error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // the error of Raw lacks the server's message
		return l, s.failed("list", err)
	}
	body, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(body, &l)
	}
	if err != nil {
		return l, s.failed("list", err)
	}
	for i, raw := range l.Items {
		object, err := decodeObject(raw, s.stored)
		if err != nil {
			return l, s.failed("list", err)
		}
		l.objects, l.Items[i] = append(l.objects, object), nil
	}
	return l, nil
}

// failed returns the error of a request.
func (s *Source) failed(verb string, err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = fmt.Errorf("%w: %w", move.ErrCompacted, err)
	}
	return fmt.Errorf("%s %s of %s: %w", verb, s.resource.GroupResource(), s.client.of, err)
}

// decodeObject returns an object as it is stored, in another version unless that is empty.
func decodeObject(raw []byte, version string) (move.Object, error) {
	decoded := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &decoded.Object); err != nil {
		return move.Object{}, fmt.Errorf("decode an object: %w", err)
	}
	key := keyOf(decoded)
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
