// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainobjects

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// aliveTimeout bounds CheckAlive. Requests of clients wait for it.
const aliveTimeout = 2 * time.Second

// http2 is what TLS negotiates for HTTP/2.
const http2 = "h2"

// asMetadata asks for the metadata of an object.
const asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

var errOtherConnection = errors.New("the connection of the watch is not used for new requests")

// connection is the connection of a request.
type connection struct{ last atomic.Pointer[net.Conn] }

// trace records the connection of the requests with a context.
func (c *connection) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { c.last.Store(&info.Conn) },
	})
}

func (c *connection) get() net.Conn {
	if conn := c.last.Load(); conn != nil {
		return *conn
	}
	return nil
}

// CheckAlive implements move.Watch: the API server on the connection of the watch reads an object from
// etcd. HTTP/1 has a connection for each request, of which one says nothing about others.
func (w *watcher) CheckAlive(ctx context.Context) error {
	if encrypted, ok := w.connection.get().(*tls.Conn); !ok || encrypted.ConnectionState().NegotiatedProtocol != http2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	resource := w.source.resource.GroupResource()
	var used connection
	err := w.source.client.Get().
		AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", resource.String()).
		SetHeader("Accept", asMetadata).
		Do(used.trace(ctx)).Error()
	if err == nil && used.get() != w.connection.get() {
		err = errOtherConnection
	}
	if err != nil {
		return fmt.Errorf("check the API server that sends the watch of %s: %w", resource, err)
	}
	return nil
}
