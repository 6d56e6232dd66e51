// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// collision returns two dictionaries with the same ID, and a value with text of both.
type collision struct {
	a, b  *Dictionary
	plain []byte
}

var findCollision = sync.OnceValue(func() collision {
	random := newRandom()
	one, other := widget(random), widget(random)
	variant := func(of []byte, i int) *Dictionary {
		return trained(strconv.AppendInt(of[:len(of):len(of)], int64(i), 10))
	}
	ids := map[uint32]int{}
	for i := range 1 << 16 {
		ids[variant(one, i).id] = i
	}
	for i := 0; ; i++ {
		b := variant(other, i)
		if at, found := ids[b.id]; found {
			return collision{a: variant(one, at), b: b, plain: append(one[:len(one):len(one)], other...)}
		}
	}
})

// TestCollision: the dictionaries of two resources have the same ID.
func TestCollision(t *testing.T) {
	t.Parallel()
	c := findCollision()
	for range 20 {
		for _, d := range []*Dictionary{c.a, c.b} {
			stored, err := compress(d, c.plain)
			expect.NoError(t, err)
			h, err := parse(stored)
			expect.NoError(t, err)
			// A later reader has only this dictionary.
			decoder, err := newDecoder(d)
			expect.NoError(t, err)
			if got, err := decoder.DecodeAll(stored[len(magic):], nil); err != nil || !bytes.Equal(got, c.plain) {
				t.Fatalf("compressed with the other dictionary: %v", err)
			}
			if got, err := decompress(d, stored, h); err != nil || !bytes.Equal(got, c.plain) {
				t.Fatalf("decompressed with the other dictionary: %v", err)
			}
			decoder.Close()
		}
	}
}

// TestCollisionInAResource adds a dictionary with the ID of one that values need.
func TestCollisionInAResource(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := findCollision()
	r := newReplica(t, etcd, nil)
	known := r.resource.dictionaries
	expect.NoError(t, known.add(t.Context(), c.a, nil))
	stored := r.write(t, etcd, "w", c.plain)
	if got := dictionaryIn(t, stored); got != c.a.id {
		t.Fatalf("written with dictionary %d", got)
	}
	if err := known.add(t.Context(), c.b, known.known()); !errors.Is(err, errExists) {
		t.Errorf("add another with the same ID: %v", err)
	}
	if got, _ := newReplica(t, etcd, nil).read(t, "w", stored); !bytes.Equal(got, c.plain) {
		t.Error("read a different value")
	}
}
