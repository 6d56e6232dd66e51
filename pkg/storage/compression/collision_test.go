// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"testing"
)

// collision is two dictionaries that have nothing but their ID in common, and a value that
// has something of either.
type collision struct {
	a, b  *dictionary
	plain []byte
}

var findCollision = sync.OnceValue(func() collision {
	random := newRandom()
	one, other := widget(random), widget(random)
	variant := func(of []byte, i int) *dictionary {
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

// TestCollision has two resources whose dictionaries have the same ID.
func TestCollision(t *testing.T) {
	t.Parallel()
	c := findCollision()
	for range 20 {
		for _, d := range []*dictionary{c.a, c.b} {
			stored, err := compress(d, c.plain)
			if err != nil {
				t.Fatal(err)
			}
			h, err := parse(stored)
			if err != nil {
				t.Fatal(err)
			}
			// What reads it later has its dictionary only.
			decoder, err := newDecoder(d)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decoder.DecodeAll(stored[len(magic):], nil); err != nil || !bytes.Equal(got, c.plain) {
				t.Fatalf("it was compressed with another dictionary: %v", err)
			}
			if got, err := decompress(d, stored, h); err != nil || !bytes.Equal(got, c.plain) {
				t.Fatalf("it was decompressed with another dictionary: %v", err)
			}
			decoder.Close()
		}
	}
}

// TestCollisionInAResource trains a dictionary with the ID of one that values need.
func TestCollisionInAResource(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := findCollision()
	r := newReplica(t, etcd, nil)
	known := r.resource.dictionaries
	if err := known.add(t.Context(), c.a, nil); err != nil {
		t.Fatal(err)
	}
	stored := r.write(t, etcd, "w", c.plain)
	if got := dictionaryIn(t, stored); got != c.a.id {
		t.Fatalf("it was written with dictionary %d", got)
	}
	if err := known.add(t.Context(), c.b, known.known()); !errors.Is(err, errLost) {
		t.Errorf("adding another with the same ID: %v", err)
	}
	if got, _ := newReplica(t, etcd, nil).read(t, "w", stored); !bytes.Equal(got, c.plain) {
		t.Error("it is read as something else")
	}
}
