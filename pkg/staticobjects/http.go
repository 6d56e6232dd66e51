// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/util/cert"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// requestTimeout bounds a request with its response.
	requestTimeout = 30 * time.Second

	// firstRetry is the delay after the first failure. It doubles up to the interval.
	firstRetry = time.Second
)

// HTTPConfig configures the source of a URL.
type HTTPConfig struct {
	URL string
	// HeaderFile has headers for the requests, each in a line. It is read for each request.
	HeaderFile string
	// CAFile verifies the server instead of the authorities of the system.
	CAFile string
	// Interval is the time between two requests.
	Interval time.Duration
}

// HTTP is a URL with objects.
type HTTP struct {
	config HTTPConfig
	url    *url.URL
	client *http.Client

	// etag and modified are headers of the last response that was used.
	etag, modified string
	objects        []Object
}

// NewHTTP returns the source of a URL.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	target, err := ParseURL(config.URL)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if config.CAFile != "" {
		pool, err := cert.NewPool(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the URL: %w", err)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	h := &HTTP{config: config, url: target}
	h.client = &http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: h.checkRedirect}
	_, err = h.header()
	return h, err
}

// ParseURL returns the URL of a source. It must be verifiable, except on the machine itself.
func ParseURL(raw string) (*url.URL, error) {
	target, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("parse the URL: %w", err)
	case target.User != nil:
		return nil, errors.New("the URL must not contain a password: other users of the machine see flags")
	case target.Host == "":
		return nil, errors.New("the URL must begin with https://HOST")
	case target.Scheme == "https", target.Scheme == "http" && isLoopback(target.Hostname()):
		return target, nil
	}
	return nil, errors.New("the URL must begin with https://: objects from an unverified server would be applied with all rights")
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Name implements Source.
func (h *HTTP) Name() string { return hostingv1alpha1.StaticSourceHTTP }

// Location implements Source. A query may contain a secret.
func (h *HTTP) Location() string {
	shown := *h.url
	shown.RawQuery, shown.Fragment = "", ""
	return shown.String()
}

// Run implements Source.
func (h *HTTP) Run(ctx context.Context, publish func(Snapshot)) {
	retry := firstRetry
	for ctx.Err() == nil {
		snapshot := h.read(ctx)
		if ctx.Err() != nil {
			return // the canceled request has failed
		}
		publish(snapshot)
		wait := h.config.Interval
		if snapshot.Complete {
			retry = firstRetry
		} else {
			wait = min(retry, wait)
			retry *= 2
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// read requests the URL. After a failure the previous objects stay.
func (h *HTTP) read(ctx context.Context) Snapshot {
	if err := h.request(ctx); err != nil {
		return Snapshot{Objects: h.objects, Problems: []Problem{{Reason: "RequestFailed", Message: err.Error()}}}
	}
	return Snapshot{Objects: h.objects, Complete: true}
}

func (h *HTTP) request(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return fmt.Errorf("create the request: %w", err)
	}
	if request.Header, err = h.header(); err != nil {
		return err
	}
	if h.etag != "" {
		request.Header.Set("If-None-Match", h.etag)
	}
	if h.modified != "" {
		request.Header.Set("If-Modified-Since", h.modified)
	}
	response, err := h.client.Do(request)
	if err != nil {
		var named *url.Error // with the query
		if errors.As(err, &named) {
			err = named.Err
		}
		return fmt.Errorf("send the request: %w", err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && (h.etag != "" || h.modified != ""):
		return nil
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the server responds %s", response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the response: %w", err)
	case len(data) > maxBytes:
		return fmt.Errorf("the response has more than %d bytes", maxBytes)
	}
	objects, err := Decode(h.Name(), "", data)
	if err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}
	h.objects, h.etag, h.modified = objects, response.Header.Get("ETag"), response.Header.Get("Last-Modified")
	return nil
}

// header reads the file of headers.
func (h *HTTP) header() (http.Header, error) {
	if h.config.HeaderFile == "" {
		return http.Header{}, nil
	}
	data, err := os.ReadFile(h.config.HeaderFile)
	if err != nil {
		return nil, fmt.Errorf("read the headers: %w", err)
	}
	lines := append(bytes.TrimSpace(data), "\r\n\r\n"...)
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader()
	if err != nil {
		// The error contains the line, which is a secret.
		return nil, fmt.Errorf("read the headers: %s must have lines such as \"Authorization: Bearer TOKEN\"", h.config.HeaderFile)
	}
	return http.Header(header), nil
}

// checkRedirect sends the headers only to the host of the URL, and refuses hosts that cannot be
// verified.
func (h *HTTP) checkRedirect(request *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirects")
	}
	if request.URL.Scheme != h.url.Scheme {
		return fmt.Errorf("redirected from %s to %s", h.url.Scheme, request.URL.Scheme)
	}
	if _, err := ParseURL(request.URL.String()); err != nil {
		return fmt.Errorf("redirected: %w", err)
	}
	if request.URL.Host == h.url.Host {
		return nil
	}
	for name := range request.Header {
		request.Header.Del(name)
	}
	return nil
}
