// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"bufio"
	"io"
	"net/http"
	"sync"
)

// eventBuffer is the size in bytes of the writes of a watch that has many events to send.
const eventBuffer = 32 << 10

var bufferPool = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, eventBuffer) }}

// withBuffer collects the events of a watch until it is flushed, which upstream does when no event
// is waiting. Without it each event is a frame of HTTP/2 and a TLS record, which cost more than
// the event. A watch that has nothing to send has no buffer.
func withBuffer(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if _, ok := w.(http.Flusher); !ok || req.Header.Get("Upgrade") != "" {
			handler(w, req) // a WebSocket takes over the connection
			return
		}
		buffered := &bufferedWriter{ResponseWriter: w}
		handler(buffered, req)
		buffered.Flush()
	}
}

type bufferedWriter struct {
	http.ResponseWriter
	buffer *bufio.Writer
}

// Write implements http.ResponseWriter.
func (w *bufferedWriter) Write(p []byte) (int, error) {
	if w.buffer == nil {
		w.buffer = bufferPool.Get().(*bufio.Writer)
		w.buffer.Reset(w.ResponseWriter)
	}
	return w.buffer.Write(p)
}

// Flush implements http.Flusher. If it fails, because the client is gone, the next write does too.
func (w *bufferedWriter) Flush() {
	if w.buffer != nil {
		if w.buffer.Flush() != nil {
			return
		}
		w.buffer.Reset(io.Discard)
		bufferPool.Put(w.buffer)
		w.buffer = nil
	}
	w.ResponseWriter.(http.Flusher).Flush()
}

// Unwrap lets http.ResponseController find the methods of the connection.
func (w *bufferedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
