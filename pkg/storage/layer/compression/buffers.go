// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import "sync"

const (
	// pieceBytes is the memory that values share, and maxShared the size of the largest ones.
	pieceBytes = 64 << 10
	maxShared  = pieceBytes / 8
)

// pieces have memory for values that are garbage as soon as they are decoded. Values that lie one
// after the other leave no holes in the heap, which only objects of their size could fill: with
// objects of 2.5 kB that is a quarter of the memory of a watch cache that was filled.
var pieces = sync.Pool{New: func() any { return &piece{} }}

type piece struct{ free []byte }

// newBuffer returns an empty buffer for a value of a size.
func newBuffer(size uint64) []byte {
	if size > maxShared {
		return nil // the decoder allocates it
	}
	p := pieces.Get().(*piece)
	defer pieces.Put(p)
	if uint64(len(p.free)) < size {
		p.free = make([]byte, pieceBytes)
	}
	buffer := p.free[:0:size]
	p.free = p.free[size:]
	return buffer
}
