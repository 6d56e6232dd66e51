// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net"
	"sync"
)

// maxRecord is the maximum size of the content of a TLS record (RFC 8446, 5.1). A full frame of HTTP/2
// has content of this size and a header, and needs two records.
const maxRecord = 16 << 10

// recordPool has buffers for a full frame with what TLS adds.
var recordPool = sync.Pool{New: func() any { return make([]byte, 0, maxRecord+1<<10) }}

// records is the connection below TLS. It sends all records of one write in one system call, because
// crypto/tls writes each record separately, and the second record of each frame would cost a system
// call and a packet for a few bytes.
type records struct {
	net.Conn

	mu      sync.Mutex
	holding bool
	held    []byte
}

// Write implements net.Conn.
func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	if !r.holding {
		r.mu.Unlock()
		return r.Conn.Write(p)
	}
	defer r.mu.Unlock()
	r.held = append(r.held, p...)
	return len(p), nil
}

// hold collects what is written until send is called. Both must not be called concurrently.
func (r *records) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding, r.held = true, recordPool.Get().([]byte)[:0]
}

// send sends what was collected.
func (r *records) send() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held
	r.holding, r.held = false, nil
	var err error
	if len(held) > 0 {
		_, err = r.Conn.Write(held)
	}
	recordPool.Put(held) //nolint:staticcheck // SA6002: a write of 16 kB costs more than the header of a slice.
	return err
}
