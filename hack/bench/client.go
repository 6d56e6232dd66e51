// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
)

const (
	asJSON     = "application/json"
	asMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"

	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

const (
	// requestLimit bounds a request, of a watch until its response begins. A full list of a large
	// resource takes a kube-apiserver seconds.
	requestLimit = 2 * time.Minute
	// largestEvent bounds the JSON of an event.
	largestEvent = 4 << 20
)

// client sends requests over HTTP/2 and drops the bodies of responses, so that it uses little
// of the CPU that it shares with the server.
type client struct {
	http *http.Client
	base string
}

// newClient returns a client with connections of its own.
func newClient(config *restclient.Config) (*client, error) {
	tlsConfig, err := restclient.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the TLS settings of %s: %w", config.Host, err)
	}
	// All servers have P-256 certificates. With the cipher too, they do the same work.
	tlsConfig.MinVersion = tls.VersionTLS13
	transport, err := restclient.HTTPWrappersForConfig(config, &http.Transport{
		TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableCompression: true, ResponseHeaderTimeout: requestLimit,
	})
	if err != nil {
		return nil, fmt.Errorf("read the credentials for %s: %w", config.Host, err)
	}
	return &client{http: &http.Client{Transport: transport}, base: config.Host}, nil
}

// request is one request. The zero values of fields are left out.
type request struct {
	method, path, accept, encoding, contentType string

	body []byte
	// keep makes the client return the body.
	keep bool
}

// response describes a response after its body was read.
type response struct {
	took  time.Duration
	bytes int64
	body  []byte
}

// open sends a request and returns the successful response with its body unread.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
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
		content, _ := io.ReadAll(io.LimitReader(received.Body, 1<<10)) // the status is reported anyway
		err = fmt.Errorf("%s: %s", received.Status, content)
	case received.ProtoMajor != 2 || received.TLS == nil || received.TLS.CipherSuite != tls.TLS_AES_128_GCM_SHA256:
		err = errors.New("the connection is not HTTP/2 with AES-128-GCM: other figures could not be compared")
	case received.Header.Get("Content-Encoding") != r.encoding:
		err = fmt.Errorf("the encoding is %q, want %q", received.Header.Get("Content-Encoding"), r.encoding)
	default:
		return received, nil
	}
	return nil, errors.Join(fmt.Errorf("%s %s: %w", sent.Method, r.path, err), received.Body.Close())
}

// send sends a request and reads the whole response.
func (c *client) send(ctx context.Context, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	began := time.Now()
	received, err := c.open(ctx, r)
	if err != nil {
		return response{}, err
	}
	defer received.Body.Close()
	var kept bytes.Buffer
	to := io.Discard
	if r.keep {
		to = &kept
	}
	total, err := io.Copy(to, received.Body)
	if err != nil {
		return response{}, fmt.Errorf("%s: after %d bytes: %w", r.path, total, err)
	}
	return response{took: time.Since(began), bytes: total, body: bytes.TrimSpace(kept.Bytes())}, nil
}

// list lists objects and returns the metadata of the list.
func (c *client) list(ctx context.Context, path string) (metav1.ListMeta, response, error) {
	received, err := c.send(ctx, request{path: path, accept: asJSON, keep: true})
	if err != nil {
		return metav1.ListMeta{}, received, err
	}
	meta, err := tailOfList(received.body)
	return meta, received, err
}

// tailOfList decodes the metadata of a list, which servers write after the items, without the
// items.
func tailOfList(body []byte) (metav1.ListMeta, error) {
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	start := bytes.LastIndex(body, []byte(`],"kind":`))
	if start < 0 {
		return list.Metadata, fmt.Errorf("find the end of the items in a list of %d bytes: it is not there", len(body))
	}
	if err := json.Unmarshal(append([]byte("{"), body[start+2:]...), &list); err != nil {
		return list.Metadata, fmt.Errorf("read the metadata of a list: %w", err)
	}
	return list.Metadata, nil
}

// readEvents calls receive with the JSON of each event of a watch until that returns true.
func readEvents(watch io.Reader, receive func(event []byte) (done bool)) error {
	lines := bufio.NewScanner(watch)
	lines.Buffer(nil, largestEvent)
	for lines.Scan() {
		if receive(lines.Bytes()) {
			return nil
		}
	}
	return errors.Join(errors.New("the watch ended"), lines.Err())
}

// close closes the connections.
func (c *client) close() { c.http.CloseIdleConnections() }
