// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// BenchmarkPart reads 10,000 objects of 2.5 kB, part by part.
func BenchmarkPart(b *testing.B) {
	etcd := newEtcd(b)
	const objects = 10_000
	seal, text := boundTransformer{"old", "pieces"}, strings.Repeat("x", 2400)
	for i := 0; i < objects; i += 100 {
		var ops []clientv3.Op
		for j := range 100 {
			key := fmt.Sprintf("%sns/w%06d", keys.Objects("/a", widgets), i+j)
			object := fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"w%06d","uid":"u"},"text":%q}`, i+j, text)
			ops = append(ops, clientv3.OpPut(key, seal.frame(value.DefaultContext(key))+object))
		}
		if _, err := etcd.Txn(b.Context()).Then(ops...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	s := source(etcd, time.Now)
	b.SetBytes(objects * 2500)
	for b.Loop() {
		at := Position{Resource: &widgets}
		for {
			var out bytes.Buffer
			if _, err := s.Part(b.Context(), &out, at); err != nil {
				b.Fatal(err)
			}
			r, err := NewReader(&out)
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = r.Next()
			}
			if !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
			if at.Revision, at.After, at.Data = r.Header().Revision, r.Trailer().Continue, r.Header().Data; at.After == "" {
				break
			}
		}
	}
}
