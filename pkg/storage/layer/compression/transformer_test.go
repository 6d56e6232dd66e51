// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestGenericNeverChanges: stored values need the generic dictionary.
func TestGenericNeverChanges(t *testing.T) {
	t.Parallel()
	const want = "fc809a3fa32aa2d0dd8d0947fe166f888cf9ab0fbe95507b85d8385e2c9a5a40"
	if got := fmt.Sprintf("%x", sha256.Sum256(generic1)); got != want {
		t.Errorf("generic-1.txt has the sum %s, not %s: values that were written with it could not be read; add another dictionary instead", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	object := widget(newRandom())
	for name, test := range map[string]struct {
		plain      []byte
		compressed bool
	}{
		"empty":                {[]byte{}, false},
		"small":                {[]byte(`{"kind":"Widget"}`), false},
		"below minSize":        {[]byte(strings.Repeat("a", minSize-1)), false},
		"minSize":              {[]byte(strings.Repeat("a", minSize)), true},
		"object":               {object, true},
		"several blocks":       {bytes.Repeat(object, 400), true},
		"beyond the window":    {bytes.Repeat(object, 4*window/len(object)), true},
		"incompressible":       {incompressible(4000), false},
		"incompressible, long": {incompressible(400_000), false},
		"protobuf":             {append([]byte("k8s\x00"), object...), true},
		"large object":         {bytes.Repeat(object, 16<<20/len(object)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, nil, nil)
			stored := r.write(t, nil, "w", test.plain)
			if got := IsCompressed(stored); got != test.compressed {
				t.Fatalf("compressed: %t, want %t", got, test.compressed)
			}
			if size, known := PlainSize(stored); !known || size != int64(len(test.plain)) {
				t.Errorf("plain size %d (%t), want %d", size, known, len(test.plain))
			}
			plain, stale := r.read(t, "w", stored)
			if !bytes.Equal(plain, test.plain) {
				t.Error("read a different value")
			}
			if stale {
				t.Error("a new value is stale")
			}
			decoded, err := Decode(stored, nil)
			if err != nil || !bytes.Equal(decoded, test.plain) {
				t.Errorf("Decode: %v", err)
			}
		})
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	object := widget(newRandom())
	r := newReplica(t, nil, nil)
	compressed := r.write(t, nil, "w", object)
	for name, test := range map[string]struct {
		stored         []byte
		enabled, stale bool
	}{
		"compressed, enabled":      {compressed, true, false},
		"compressed, disabled":     {compressed, false, true},
		"plain, enabled":           {object, true, true},
		"plain, disabled":          {object, false, false},
		"small, enabled":           {[]byte("{}"), true, false},
		"incompressible, enabled":  {incompressible(4000), true, false},
		"incompressible, disabled": {incompressible(4000), false, false},
	} {
		r.enabled = test.enabled
		if _, stale := r.read(t, "w", test.stored); stale != test.stale {
			t.Errorf("%s: stale is %t", name, stale)
		}
	}
	r.enabled = true
	if _, stale, err := r.TransformFromStorage(t.Context(), object, value.DefaultContext("w")); stale || err != nil {
		t.Errorf("a read without an update tried to compress: %t, %v", stale, err)
	}
	r.enabled = false
	if IsCompressed(r.write(t, nil, "w", object)) {
		t.Error("compressed while disabled")
	}
}

// TestDamaged changes every byte and truncates at every length: reads return the original
// value or an error.
func TestDamaged(t *testing.T) {
	t.Parallel()
	object := widget(newRandom())
	r := newReplica(t, nil, nil)
	stored := r.write(t, nil, "w", object)
	check := func(what string, damaged []byte) {
		plain, _, err := r.TransformFromStorage(t.Context(), damaged, value.DefaultContext("/annex/w"))
		if err == nil && IsCompressed(damaged) && !bytes.Equal(plain, object) {
			t.Errorf("%s: read a different value", what)
		}
		if err != nil && !strings.Contains(err.Error(), "/annex/w") {
			t.Errorf("%s: the error does not name the key: %v", what, err)
		}
	}
	for i := range stored {
		for _, bit := range []byte{1, 0x10, 0x80, 0xff} {
			damaged := bytes.Clone(stored)
			damaged[i] ^= bit
			check(fmt.Sprintf("byte %d ^ %x", i, bit), damaged)
		}
		check(fmt.Sprintf("cut at %d", i), stored[:i])
	}
	for what, behind := range map[string][]byte{"itself": stored[len(magic):], "a newline": []byte("\n"), "zeros": make([]byte, 20)} {
		_, _, err := r.TransformFromStorage(t.Context(), append(bytes.Clone(stored), behind...), value.DefaultContext("/annex/w"))
		expect.Error(t, err, "damaged")
		if t.Failed() {
			t.Fatalf("with %s after it", what)
		}
	}
	if _, err := r.TransformToStorage(t.Context(), stored, value.DefaultContext("/annex/w")); !errors.Is(err, errMagic) {
		t.Errorf("write a value with the magic: %v", err)
	}
}

// TestBomb reads values that claim to be, or are, larger than any that annex writes. It is
// not parallel because it measures memory.
func TestBomb(t *testing.T) {
	// claim begins a frame with a checksum, two bytes of dictionary ID and four of size.
	claim := func(size uint32) []byte {
		value := append([]byte(magic), 0x28, 0xb5, 0x2f, 0xfd, 0xa6)
		value = binary.LittleEndian.AppendUint16(value, uint16(genericID1))
		return binary.LittleEndian.AppendUint32(value, size)
	}
	// repeated appends RLE blocks and marks the last.
	repeated := func(value []byte, blocks int) []byte {
		for i := range blocks {
			header := uint32(maxBlock)<<3 | blockRLE<<1
			if i == blocks-1 {
				header |= 1
			}
			value = append(value, byte(header), byte(header>>8), byte(header>>16), 'a')
		}
		return append(value, "sums"...)
	}
	honest, err := compress(newestGeneric, bytes.Repeat([]byte("a"), 100_000))
	expect.NoError(t, err)
	r := newReplica(t, nil, nil)
	for name, test := range map[string]struct {
		value []byte
		want  string
	}{
		"larger than MaxPlainSize":   {repeated(claim(MaxPlainSize+1), 2000), "claims more than"},
		"larger than its blocks":     {repeated(claim(MaxPlainSize), 1), "hold at most 131072"},
		"truncated after the header": {claim(MaxPlainSize), "ends too early"},
		"larger than its header":     {repeated(claim(600), 1200), "damaged"},
		"followed by another":        {append(bytes.Clone(honest), repeated(claim(MaxPlainSize), 1280)[len(magic):]...), "bytes follow it"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := r.TransformFromStorage(t.Context(), test.value, value.DefaultContext("/annex/w"))
			runtime.ReadMemStats(&after)
			expect.Error(t, err, "/annex/w", test.want)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
				t.Errorf("%d bytes of memory for a value of %d", took, len(test.value))
			}
		})
	}
	if _, known := PlainSize(claim(MaxPlainSize + 1)); known {
		t.Error("the size was accepted")
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	object := widget(newRandom())
	for name, plain := range map[string][]byte{
		"one block":      object,
		"several blocks": bytes.Repeat(object, 400),
		"repetition":     bytes.Repeat([]byte("a"), 300_000),
		"raw blocks":     incompressible(300_000),
	} {
		stored, err := compress(newestGeneric, plain)
		expect.NoError(t, err)
		for _, printed := range [][]byte{stored, append(bytes.Clone(stored), '\n')} {
			if got, err := Trim(printed); err != nil || !bytes.Equal(got, stored) {
				t.Errorf("%s: got %d bytes (%v), want %d", name, len(got), err, len(stored))
			}
		}
		for _, damaged := range [][]byte{stored[:len(stored)-1], append(bytes.Clone(stored), "\nmore"...)} {
			if _, err := Trim(damaged); !errors.Is(err, errDamaged) {
				t.Errorf("%s, damaged: %v", name, err)
			}
		}
	}
}

// TestConcurrent uses more goroutines and dictionaries than there are coders.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			d := trained(bytes.Repeat([]byte{byte(i % 7)}, 5000))
			for range 20 {
				plain := append(bytes.Repeat([]byte{byte(i % 7)}, 3000), byte(i))
				stored, err := compress(d, plain)
				if err != nil {
					t.Error(err)
					return
				}
				h, err := parse(stored)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := decompress(d, stored, h); err != nil || !bytes.Equal(got, plain) {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	encoders.mu.Lock()
	defer encoders.mu.Unlock()
	if encoders.made > encoders.limit {
		t.Errorf("%d encoders", encoders.made)
	}
}

// downKV is an unavailable etcd.
type downKV struct{ clientv3.KV }

func (downKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, errors.New("etcd is down")
}

// TestStoreUnavailable: a write succeeds with the generic dictionary.
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	r := newReplica(t, downKV{}, nil)
	object := widget(newRandom())
	for range 3 {
		if id := dictionaryIn(t, r.write(t, nil, "w", object)); id != genericID1 {
			t.Errorf("written with dictionary %d", id)
		}
	}
}
