// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectsize bounds the size of objects, and the memory for concurrent writes of
// large ones.
//
// A write has two limits: annex limits the encoded object, and the Store's etcd limits the
// compressed and encrypted value. The Transformer records both sizes, and the Storage
// reports them in errors.
package objectsize

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/lru"

	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
)

// Config configures a Limiter.
type Config struct {
	Resource schema.GroupResource
	// Store is the name of the resource's Store.
	Store string
	// Prefix begins the Store's keys.
	Prefix string
	// MaxBytes bounds the size of an encoded object before compression.
	MaxBytes int64
	// Budget is shared by all resources. It may be nil.
	Budget *Budget
	// Definition defines the resource; nil for a compiled-in one.
	Definition *apiextensionsv1.CustomResourceDefinition
}

// Limiter bounds the objects of a resource. Its Transformer and Storage must be used together,
// inside writeinfo.Storage.
type Limiter struct {
	config Config
	heavy  heavy
}

// NewLimiter returns a Limiter.
func NewLimiter(config Config) *Limiter {
	return &Limiter{config: config, heavy: newHeavy(config.Prefix)}
}

// limitError says which limit an object exceeds.
type limitError string

// Error implements error.
func (e limitError) Error() string { return string(e) }

// Transformer wraps the compression and encryption of values.
func (l *Limiter) Transformer(inner value.Transformer) value.Transformer {
	return &transformer{Transformer: inner, limiter: l}
}

type transformer struct {
	value.Transformer
	limiter *Limiter
}

// TransformToStorage implements value.Transformer.
func (t *transformer) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	stored, err := t.Transformer.TransformToStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, err
	}
	values := weigh(data)
	t.limiter.heavy.record(dataCtx, values.Weight())
	info := writeinfo.FromContext(ctx)
	if info == nil {
		return stored, nil
	}
	info.PlainBytes, info.StoredBytes = len(data), len(stored)
	// A terminating object is written whatever its size: otherwise it could never lose its
	// finalizers once the limit is lowered.
	if info.Terminating {
		return stored, nil
	}
	if refusal := t.limiter.config.refusal(values, data); refusal != "" {
		return nil, limitError(refusal)
	}
	return stored, nil
}

// refusal says which limit an object exceeds, or is empty.
func (c *Config) refusal(values *Values, data []byte) string {
	if int64(len(data)) > c.MaxBytes {
		return fmt.Sprintf("an object may have %d bytes (--max-object-bytes)", c.MaxBytes)
	}
	if limit := MaxValues(c.MaxBytes); values.Count() > limit {
		return fmt.Sprintf("an object may have %d values, one for each %d bytes of --max-object-bytes", limit, bytesPerValue)
	}
	if refusal := values.Refusal(); refusal != "" || values.Items() <= MaxItems {
		return refusal
	}
	return NewAssociativeLists(c.Definition).Refusal(data)
}

// weigh counts the values of a stored object if it may be heavy and heavier than its size. Objects that
// are stored as Protobuf are small.
func weigh(data []byte) *Values {
	counted := &Values{IsJSON: true, bytes: int64(len(data))}
	if mayBeHeavy(data) {
		*counted = Values{IsJSON: true}
		counted.Add(data)
	}
	return counted
}

// mayBeHeavy is much faster than counting the values. All but the first of an object or list follow
// a comma.
func mayBeHeavy(data []byte) bool {
	if len(data) == 0 || data[0] != '{' {
		return false
	}
	levels := bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("["))
	values := levels + bytes.Count(data, []byte(",")) + 1
	return max(values*valueBytes, levels*len(data)/nestedBytes) >= HeavyBytes
}

// TransformFromStorage implements value.Transformer.
func (t *transformer) TransformFromStorage(ctx context.Context, stored []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, stale, err := t.Transformer.TransformFromStorage(ctx, stored, dataCtx)
	if err == nil {
		t.limiter.heavy.record(dataCtx, weigh(data).Weight())
	}
	return data, stale, err
}

// Storage reports refused writes with both sizes, and makes updates of large objects wait for
// the budget.
func (l *Limiter) Storage(inner storage.Interface) storage.Interface {
	return &limited{Interface: inner, limiter: l}
}

type limited struct {
	storage.Interface
	limiter *Limiter
}

// Create implements storage.Interface. The request already has a reservation for the object.
func (s *limited) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.limiter.explain(ctx, s.Interface.Create(ctx, key, obj, out, ttl), key)
}

// GuaranteedUpdate implements storage.Interface. A small patch of a large object takes as much
// memory as writing all of it.
func (s *limited) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if budget := s.limiter.config.Budget; budget != nil {
		release, err := budget.Acquire(ctx, s.limiter.heavy.weight(key))
		if err != nil {
			return err
		}
		defer release()
	}
	if r := RequestFrom(ctx); r != nil && r.MaxItems() > 0 {
		tryUpdate = ofShortLists(r.MaxItems(), tryUpdate)
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	return s.limiter.explain(ctx, err, key)
}

func ofShortLists(items int64, tryUpdate storage.UpdateFunc) storage.UpdateFunc {
	return func(existing runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		data, err := json.Marshal(existing)
		if err != nil {
			return nil, nil, fmt.Errorf("count the items of lists: %w", err)
		}
		values := &Values{IsJSON: true}
		if values.Add(data); values.Items() > items {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"the request would take too long: the object has lists of more than %d items, replace it or use a smaller patch", items))
		}
		return tryUpdate(existing, meta)
	}
}

// explain converts errors about sizes to 413 with both sizes.
func (l *Limiter) explain(ctx context.Context, err error, key string) error {
	var limit limitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
	case RefusedByEtcd(err):
		limit = limitError(fmt.Sprintf("that does not fit into a request to the etcd of Store %q (its --max-request-bytes, 1.5 MiB by default)", l.config.Store))
	default:
		return err
	}
	resource, name, info := l.config.Resource, path.Base(key), cmp.Or(writeinfo.FromContext(ctx), &writeinfo.Info{})
	// An exact stored size would tell how well the object compresses, and so what the dictionary has.
	storedKiB := (info.StoredBytes + 1023) >> 10
	refusal := apierrors.NewRequestEntityTooLargeError(
		fmt.Sprintf("%s %q has %d bytes, %d KiB as it is stored: %s", resource, name, info.PlainBytes, storedKiB, limit))
	refusal.ErrStatus.Details = &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name}
	return refusal
}

// RefusedByEtcd reports whether etcd or gRPC refused a request as too large.
func RefusedByEtcd(err error) bool {
	if err.Error() == rpctypes.ErrRequestTooLarge.Error() {
		return true
	}
	refusal, ok := status.FromError(err)
	return ok && refusal.Code() == codes.ResourceExhausted && strings.Contains(refusal.Message(), "message larger than max")
}

// maxHeavy bounds the large objects per resource in heavy.
const maxHeavy = 10000

// heavy has the weights of large objects, so that memory is acquired before one is read for an
// update. An evicted object is added again by the next read.
type heavy struct {
	prefix  string
	weights *lru.Cache // of int64, by key without prefix
}

func newHeavy(prefix string) heavy {
	return heavy{prefix: strings.Trim(prefix, "/"), weights: lru.New(maxHeavy)}
}

// record records the weight of a value that is read or written.
func (h *heavy) record(dataCtx value.Context, weight int64) {
	if weight < HeavyBytes && h.weights.Len() == 0 {
		return
	}
	key := strings.TrimPrefix(strings.Trim(string(dataCtx.AuthenticatedData()), "/"), h.prefix+"/")
	if weight < HeavyBytes {
		h.weights.Remove(key)
	} else {
		h.weights.Add(key, weight)
	}
}

// weight returns 0 for objects that are not large.
func (h *heavy) weight(key string) int64 {
	if weight, ok := h.weights.Get(strings.Trim(key, "/")); ok {
		return weight.(int64)
	}
	return 0
}
