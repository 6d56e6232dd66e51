// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// http2 is the protocol that TLS negotiates for HTTP/2.
const http2 = "h2"

const asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

var errOtherConnection = errors.New("the connection of the watch is not used for new requests")

// connection is the last connection of a request.
type connection struct{ atomic.Pointer[net.Conn] }

// trace records the connection of the requests with a context.
func (c *connection) trace(ctx context.Context) context.Context {
	c.Store(new(net.Conn))
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { c.Store(&info.Conn) }})
}

// shared returns the connection of the watch if new requests can use it. HTTP/1 has one for each request, which proves
// nothing about others.
func (w *watcher) shared() net.Conn {
	encrypted, ok := (*w.connection.Load()).(*tls.Conn)
	if ok && encrypted.ConnectionState().NegotiatedProtocol == http2 {
		return encrypted
	}
	return nil
}

// A question is a request on the connection of a watch, to the API server that sends it.
type question string

const (
	// fromEtcd reads the APIService of the group version, from etcd because it names no resource version.
	// It is small: definitions and objects may have megabytes, which kube-apiserver decodes for each read. annex has
	// the right, and the main cluster answers it whoever serves the group. It proves the same for the watch: each version
	// of a definition has a connection to etcd of its own, and no request reaches that one once the version is
	// routed to annex. But both are to the same etcds, over which the client distributes requests in turn.
	fromEtcd question = "/apis/apiregistration.k8s.io/v1/apiservices/"
	// fromMemory reads nothing from etcd.
	fromMemory question = "/version"
)

type answer struct {
	question
	began time.Time
	took  time.Duration
	err   error
}

func (s *Source) ask(ctx context.Context, q question, on net.Conn) answer {
	a := answer{question: q, began: time.Now()}
	path := string(q)
	if q == fromEtcd {
		path += s.resource.Version + "." + s.resource.Group
	}
	var used connection
	a.err = s.client.Get().AbsPath(path).SetHeader("Accept", asMetadata).Do(used.trace(ctx)).Error()
	status := apierrors.APIStatus(nil)
	if q == fromEtcd && apierrors.IsNotFound(a.err) || q == fromMemory && errors.As(a.err, &status) {
		a.err = nil
	}
	if ctx.Err() != nil {
		a.err = context.Cause(ctx)
	} else if a.err == nil && *used.Load() != on {
		a.err = errOtherConnection
	}
	a.took = time.Since(a.began)
	return a
}

// askShared shares questions of the same moment among watches of a connection.
func (w *watcher) askShared(ctx context.Context, q question, on net.Conn) answer {
	moment := fmt.Sprintf("%s %p %d", q, on, time.Now().UnixNano()/int64(askInterval))
	result := w.source.client.questions.DoChan(moment, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLimit)
		defer cancel()
		return w.source.ask(ctx, q, on), nil
	})
	select {
	case found := <-result:
		return found.Val.(answer)
	case <-ctx.Done():
		return answer{question: q, err: context.Cause(ctx)}
	}
}

// CheckAlive implements move.Watch.
func (w *watcher) CheckAlive(ctx context.Context) error {
	on := w.shared()
	if on == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxLimit)
	defer cancel()
	return w.notAlive(w.source.ask(ctx, fromEtcd, on).err)
}

// UntilDead implements move.Watch.
func (w *watcher) UntilDead(ctx context.Context, measured func()) error {
	on := w.shared()
	if on == nil {
		measured()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer)
	ask := func(q question) {
		select {
		case answers <- w.askShared(ctx, q, on):
		case <-ctx.Done():
		}
	}
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	l := newLiveness(time.Now())
	for {
		select {
		case <-tick.C:
			if err := l.problem(time.Now()); err != nil {
				return w.notAlive(err)
			}
			go ask(fromEtcd)
			go ask(fromMemory)
		case a := <-answers:
			if l.add(a) {
				measured()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *watcher) notAlive(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("check the API server that sends the watch of %s: %w", w.source.resource.GroupResource(), err)
}
