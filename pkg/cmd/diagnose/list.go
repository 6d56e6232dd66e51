// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
)

// Limits of a sample. Few objects are large, and all of a page are read from etcd at once.
const (
	pageSize      = 100
	sampleObjects = 500
	sampleBytes   = 16 << 20
)

// lister lists collections in pages, and holds one object at a time.
type lister struct{ client restclient.Interface }

// all calls use with each object of a collection.
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
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	defer body.Close()
	page := &metav1.ListMeta{}
	if err := decodeList(json.NewDecoder(body), page, use); err != nil {
		return nil, fmt.Errorf("read the list %s: %w", path, err)
	}
	return page, nil
}

// decodeList decodes one object of a list at a time.
func decodeList(decoder *json.Decoder, page *metav1.ListMeta, use func(json.RawMessage) error) error {
	if err := expectDelimiter(decoder, '{'); err != nil {
		return err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		switch key {
		case "metadata":
			err = decoder.Decode(page)
		case "items":
			err = decodeItems(decoder, use)
		default:
			err = decoder.Decode(&json.RawMessage{})
		}
		if err != nil {
			return err
		}
	}
	return expectDelimiter(decoder, '}')
}

func decodeItems(decoder *json.Decoder, use func(json.RawMessage) error) error {
	if err := expectDelimiter(decoder, '['); err != nil {
		return err
	}
	for decoder.More() {
		var object json.RawMessage
		if err := decoder.Decode(&object); err != nil {
			return err
		}
		if err := use(object); err != nil {
			return err
		}
	}
	return expectDelimiter(decoder, ']')
}

func expectDelimiter(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err == nil && token != want {
		err = fmt.Errorf("found %v instead of %v", token, want)
	}
	return err
}
