// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
)

// Limits of a sample. Few objects are large, and all of a page are read from etcd at once.
const (
	firstPage     = 10
	pageSize      = 100
	sampleObjects = 500
	sampleBytes   = 16 << 20
)

type lister struct{ client restclient.Interface }

// each calls use with each object of a collection.
func each[T any](ctx context.Context, l lister, path, kind string, use func(*T)) error {
	decode := func(object json.RawMessage) error {
		decoded := new(T)
		if err := json.Unmarshal(object, decoded); err != nil {
			return fmt.Errorf("decode a %s: %w", kind, err)
		}
		use(decoded)
		return nil
	}
	for token := ""; ; {
		page, err := l.page(ctx, path, token, pageSize, decode)
		if err != nil {
			return err
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// content describes the objects of a collection.
type content struct {
	// objects is their exact number.
	objects, bytes int64
	// memory estimates the live memory of a watch cache with them, in bytes.
	memory int64
	source Source
}

// read counts the objects of a collection. Their sizes are from the metrics if these count about as many objects; otherwise
// the first objects are measured. Metrics alone do not do: they lack the objects of the last minute.
func (l lister) read(ctx context.Context, path string, known measured) (content, error) {
	var seen, size, memory, total int64
	use := func(object json.RawMessage) error {
		seen++
		size += int64(len(object))
		decoded, err := decodedSize(object)
		memory += decoded + perObject
		return err
	}
	for token, limit := "", firstPage; ; limit = pageSize {
		page, err := l.page(ctx, path, token, limit, use)
		if err != nil && total > 0 && apierrors.IsResourceExpired(err) {
			break
		}
		if err != nil {
			return content{}, err
		}
		if page.Continue == "" {
			return content{seen, size, memory, SourceList}, nil
		}
		if token == "" && page.RemainingItemCount != nil {
			total = seen + *page.RemainingItemCount
		}
		if bytes, ok := known.bytesOf(total); ok {
			return content{total, bytes, scale(memory, bytes, size), SourceMetrics}, nil
		}
		if total > 0 && (seen >= sampleObjects || size >= sampleBytes) {
			break
		}
		token = page.Continue
	}
	return content{total, scale(size, total, seen), scale(memory, total, seen), SourceSample}, nil
}

// scale returns the value of the whole, given the value of a part.
func scale(value, whole, part int64) int64 {
	return int64(float64(value) * float64(whole) / float64(part))
}

// count returns the number of objects of a collection, and the resource version of etcd.
func (l lister) count(ctx context.Context, path string) (objects int64, version string, err error) {
	page, err := l.page(ctx, path, "", 1, func(json.RawMessage) error { objects++; return nil })
	if err != nil {
		return 0, "", err
	}
	return objects + ptr.Deref(page.RemainingItemCount, 0), page.ResourceVersion, nil
}

// page calls use with each object of a page. It does not read from watch caches: kube-apiserver
// ignores limits there.
func (l lister) page(ctx context.Context, path, token string, limit int, use func(json.RawMessage) error) (*metav1.ListMeta, error) {
	request := l.client.Get().AbsPath(path).Param("limit", strconv.Itoa(limit)).SetHeader("Accept", "application/json")
	if token != "" {
		request.Param("continue", token)
	}
	body, err := login.Raw(request.Do(ctx))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	var page struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("read the list %s: %w", path, err)
	}
	for _, object := range page.Items {
		if err := use(object); err != nil {
			return nil, fmt.Errorf("read the list %s: %w", path, err)
		}
	}
	return &page.Metadata, nil
}
