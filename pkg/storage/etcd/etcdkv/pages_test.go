// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sizes has one key per size of a value, and records the limits of its reads.
type sizes struct {
	values []int
	limits []int64
	fails  bool
}

func (s *sizes) Get(_ context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, options...)
	if first := len(s.limits) == 0; op.Rev() != 7 && !first {
		return nil, fmt.Errorf("revision %d is not that of the first page", op.Rev())
	}
	if s.fails && len(s.limits) == 1 {
		return nil, errors.New("refused")
	}
	s.limits = append(s.limits, op.Limit())
	page := &clientv3.GetResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}}
	for index, size := range s.values {
		switch at := fmt.Sprintf("%05d", index); {
		case at < key:
		case int64(len(page.Kvs)) == op.Limit():
			page.More = true
			return page, nil
		default:
			page.Kvs = append(page.Kvs, &mvccpb.KeyValue{Key: []byte(at), Value: make([]byte, size)})
		}
	}
	return page, nil
}

// TestPages reads each key once, in pages that adapt to the size of the values.
func TestPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source sizes
		limits []int64
		err    string
	}{
		"no keys":        {limits: []int64{8}},
		"one page":       {source: sizes{values: make([]int, 8)}, limits: []int64{8}},
		"small values":   {source: sizes{values: make([]int, 50)}, limits: []int64{8, 16, 32}},
		"large values":   {source: sizes{values: slices.Repeat([]int{1 << 20}, 14)}, limits: []int64{8, 3, 3}},
		"largest values": {source: sizes{values: slices.Repeat([]int{5 << 20}, 10)}, limits: []int64{8, 1, 1}},
		"failed":         {source: sizes{values: make([]int, 9), fails: true}, limits: []int64{8}, err: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, ended := 0, error(nil)
			for page, err := range Pages(t.Context(), &test.source, "00000", "a") {
				if ended = err; err == nil {
					read += len(page.Kvs)
				}
			}
			if (ended != nil || test.err != "") && fmt.Sprint(ended) != test.err {
				t.Fatalf("the pages ended with %v, want %q", ended, test.err)
			}
			if ended == nil && read != len(test.source.values) {
				t.Errorf("%d keys were read, want %d", read, len(test.source.values))
			}
			if !slices.Equal(test.source.limits, test.limits) {
				t.Errorf("the pages were limited to %d, want %d", test.source.limits, test.limits)
			}
		})
	}
}
