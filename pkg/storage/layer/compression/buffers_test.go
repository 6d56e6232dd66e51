// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
)

// pattern returns size bytes that differ from the bytes in other buffers.
func pattern(worker, size int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d of %d,", size, worker), size)[:size]
}

// TestBuffers fills buffers of all sizes at the same time: none may be part of another.
func TestBuffers(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			filled := map[int][]byte{}
			for size := 0; size < 3*maxShared/2; size += 101 + worker {
				filled[size] = append(newBuffer(uint64(size)), pattern(worker, size)...)
			}
			for size, got := range filled {
				if !bytes.Equal(got, pattern(worker, size)) {
					t.Errorf("a buffer of %d bytes was changed through another", size)
				}
			}
		})
	}
	running.Wait()
}
