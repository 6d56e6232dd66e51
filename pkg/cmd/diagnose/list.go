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

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
)

// Limits of a sample. Few objects are large, and all of a page are read from etcd at once.
const (
	pageSize      = 100
	sampleObjects = 500
	sampleBytes   = 16 << 20
)

type lister struct{ client restclient.Interface }

func (l lister) all(ctx context.Context, path string, use func(object json.RawMessage) error) error {
	for token := ""; ; {
		page, err := l.page(ctx, path, token, use)
		if err != nil {
			return err
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// sample returns the number of objects of a collection and their estimated size. It is exact
// if all were read.
func (l lister) sample(ctx context.Context, path string) (objects, bytes int64, source Source, err error) {
	var seen, size, total int64
	use := func(object json.RawMessage) error {
		seen++
		size += int64(len(object))
		return nil
	}
	for token := ""; ; {
		page, err := l.page(ctx, path, token, use)
		if err != nil && total > 0 && apierrors.IsResourceExpired(err) {
			break
		}
		if err != nil {
			return 0, 0, "", err
		}
		if page.Continue == "" {
			return seen, size, SourceList, nil
		}
		if token == "" && page.RemainingItemCount != nil {
			total = seen + *page.RemainingItemCount
		}
		if total > 0 && (seen >= sampleObjects || size >= sampleBytes) {
			break
		}
		token = page.Continue
	}
	return total, int64(float64(size) / float64(seen) * float64(total)), SourceSample, nil
}

// page calls use with each object of a page. It does not read from watch caches: kube-apiserver
// ignores limits there.
func (l lister) page(ctx context.Context, path, token string, use func(json.RawMessage) error) (*metav1.ListMeta, error) {
	request := l.client.Get().AbsPath(path).Param("limit", strconv.Itoa(pageSize)).SetHeader("Accept", "application/json")
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
