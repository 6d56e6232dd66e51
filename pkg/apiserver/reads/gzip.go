// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzip"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"
)

// gzipThreshold is the size in bytes above which upstream compresses an answer
// (defaultGzipThresholdBytes of its responsewriters).
const gzipThreshold = 128 << 10

var gzipPool = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed) // upstream's level
	utilruntime.Must(err)
	return w
}}

// withGzip compresses what upstream would compress, for less CPU: most of the time that a large
// list takes is spent here.
func withGzip(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if responsewriters.ContentEncodingSupported(req, features.APIResponseCompression) == "" {
			handler(w, req)
			return
		}
		plain := req.Clone(req.Context())
		plain.Header.Del("Accept-Encoding")
		compressing := &gzipWriter{ResponseWriter: w, code: http.StatusOK}
		defer compressing.release() // also if the handler panics, and the answer stays incomplete
		handler(compressing, plain)
		if err := compressing.finish(); err != nil {
			utilruntime.HandleErrorWithContext(req.Context(), err, "Finish an answer", "path", req.URL.Path)
		}
	}
}

// gzipWriter holds back an answer until it is known whether it is large.
type gzipWriter struct {
	http.ResponseWriter
	code       int
	held       bytes.Buffer
	compressor *gzip.Writer
}

// WriteHeader implements http.ResponseWriter.
func (w *gzipWriter) WriteHeader(code int) { w.code = code }

// Write implements http.ResponseWriter.
func (w *gzipWriter) Write(p []byte) (int, error) {
	if w.compressor != nil {
		return w.compressor.Write(p)
	}
	if w.held.Len()+len(p) <= gzipThreshold {
		return w.held.Write(p)
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	w.ResponseWriter.WriteHeader(w.code)
	w.compressor = gzipPool.Get().(*gzip.Writer)
	w.compressor.Reset(w.ResponseWriter)
	if _, err := w.compressor.Write(w.held.Bytes()); err != nil {
		return 0, err
	}
	w.held = bytes.Buffer{}
	return w.compressor.Write(p)
}

// finish writes what is held back.
func (w *gzipWriter) finish() error {
	if w.compressor != nil {
		if err := w.compressor.Close(); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
		return nil
	}
	w.ResponseWriter.WriteHeader(w.code)
	_, err := w.ResponseWriter.Write(w.held.Bytes())
	return err
}

func (w *gzipWriter) release() {
	if w.compressor != nil {
		w.compressor.Reset(nil)
		gzipPool.Put(w.compressor)
	}
}
