// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	restclient "k8s.io/client-go/rest"
)

const (
	asJSON     = "application/json"
	asMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// requestLimit bounds a request, of a watch until its response begins. A full list of a large
// resource takes a kube-apiserver seconds.
const requestLimit = 2 * time.Minute

// client sends requests over HTTP/2 and drops the bodies of responses, so that it uses little
// of the CPU that it shares with the server.
type client struct {
	http *http.Client
	base string
}

// newClient returns a client with connections of its own.
func newClient(config *restclient.Config) (*client, error) {
	settings, err := restclient.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the TLS settings of %s: %w", config.Host, err)
	}
	// All servers have P-256 certificates. With the cipher too, they do the same work.
	settings.MinVersion = tls.VersionTLS13
	transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true, DisableCompression: true, ResponseHeaderTimeout: requestLimit}
	return &client{http: &http.Client{Transport: transport}, base: config.Host}, nil
}

// request is one request. The zero values of fields are left out.
type request struct {
	method, path, accept, encoding, contentType string

	body []byte
	// keep makes the client return the body.
	keep bool
}

// response is what is known of a response after its body was read.
type response struct {
	bytes int64
	body  []byte
}

// buffers are for bodies that are dropped.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// open sends a request and returns the successful response with its body unread.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	if r.method == "" {
		r.method = http.MethodGet
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Accept": r.accept, "Accept-Encoding": r.encoding, "Content-Type": r.contentType} {
		if value != "" {
			sent.Header.Set(name, value)
		}
	}
	received, err := c.http.Do(sent)
	if err != nil {
		return nil, err
	}
	switch {
	case received.StatusCode >= http.StatusBadRequest:
		content, err := io.ReadAll(io.LimitReader(received.Body, 1<<10))
		err = errors.Join(err, received.Body.Close())
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", r.method, r.path, received.Status, content), err)
	case received.ProtoMajor != 2 || received.TLS == nil || received.TLS.CipherSuite != tls.TLS_AES_128_GCM_SHA256:
		err = fmt.Errorf("%s %s: the connection is not HTTP/2 with AES-128-GCM: other figures could not be compared", r.method, r.path)
	case received.Header.Get("Content-Encoding") != r.encoding:
		err = fmt.Errorf("%s %s: the encoding is %q, want %q", r.method, r.path, received.Header.Get("Content-Encoding"), r.encoding)
	default:
		return received, nil
	}
	return nil, errors.Join(err, received.Body.Close())
}

// send sends a request and reads the whole response.
func (c *client) send(ctx context.Context, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	received, err := c.open(ctx, r)
	if err != nil {
		return response{}, err
	}
	defer received.Body.Close()
	if r.keep {
		content, err := io.ReadAll(received.Body)
		return response{bytes: int64(len(content)), body: bytes.TrimSpace(content)}, err
	}
	buffer := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buffer)
	var total int64
	for {
		n, err := received.Body.Read(buffer[:])
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return response{bytes: total}, nil
		}
		if err != nil {
			return response{}, fmt.Errorf("%s %s: after %d bytes: %w", r.method, r.path, total, err)
		}
	}
}

// listMeta returns the metadata of a list of one object.
func (c *client) listMeta(ctx context.Context) (listMeta, error) {
	var list listMeta
	received, err := c.send(ctx, request{path: collection + "?limit=1", accept: asJSON, keep: true})
	if err == nil {
		err = json.Unmarshal(received.body, &list)
	}
	return list, err
}

// watch reads events until the context ends, or until done returns true. It calls it with what
// was read and the number of events in it: each ends with a newline.
func (c *client) watch(ctx context.Context, path string, opened func(), done func(read []byte, events int) bool) error {
	received, err := c.open(ctx, request{path: path, accept: asJSON})
	if err != nil {
		return err
	}
	defer received.Body.Close()
	opened()
	buffer := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buffer)
	for {
		n, err := received.Body.Read(buffer[:])
		if done(buffer[:n], bytes.Count(buffer[:n], []byte("\n"))) {
			return nil
		}
		if ctx.Err() != nil {
			return nil // the caller ends the watch
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
}

// close closes the connections.
func (c *client) close() { c.http.CloseIdleConnections() }
