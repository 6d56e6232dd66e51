// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

const (
	// windowBytes of a body, and the first objectsize.HeavyBytes, have to arrive within
	// windowTime.
	windowBytes = 1 << 20
	windowTime  = 10 * time.Second
	// trustedBytes of the declared length are allocated before they arrive. The buffer of an ordinary body does not grow.
	trustedBytes = 16 << 10
	// unreadTime bounds the time in which net/http reads the unused rest of a body.
	unreadTime = time.Second
)

// body is a request body. receive reads it into memory, Read returns it.
type body struct {
	io.Closer  // of the connection
	connection io.Reader
	control    *http.ResponseController
	limits     BodyLimits
	// ctx ends when the client disconnects or the request times out.
	ctx context.Context
	// length is -1 if unknown.
	length int64
	// isText reports whether the body is JSON or YAML.
	isText bool

	// mu guards complete and ended, because a handler that timed out does not end with the request.
	mu              sync.Mutex
	complete, ended bool

	received    bool
	err         error
	size        int64
	values      objectsize.Values
	content     net.Buffers
	reservation *objectsize.Reservation
	// items is MaxItems.
	items int64
}

var _ objectsize.Request = &body{}

// bodyOf returns the body of a request, or nil.
func bodyOf(ctx context.Context) *body {
	b, _ := objectsize.RequestFrom(ctx).(*body)
	return b
}

// IsReserved implements objectsize.Request.
func (b *body) IsReserved() bool { return b.reservation != nil }

// MaxItems implements objectsize.Request.
func (b *body) MaxItems() int64 { return b.items }

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) { return b.content.Read(p) }

// receive reads the body once and stores an error in err.
func (b *body) receive(who user.Info, info *request.RequestInfo) {
	if b.received {
		return
	}
	b.received = true
	b.err = b.read(who, b.limits.of(info))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complete = b.err == nil
}

func (b *body) read(who user.Info, limit limit) error {
	if b.length > limit.bytes {
		return limit.exceeded(fmt.Sprint(b.length))
	}
	more, err := b.window(objectsize.HeavyBytes, limit)
	if err == nil && more {
		expected := b.length
		if expected < 0 {
			expected = limit.bytes
		}
		b.reservation = b.limits.Budget.Reservation(who)
		err = b.reservation.Share(b.ctx, expected)
	}
	for err == nil && more {
		if err = b.reservation.Arrive(b.ctx, windowBytes); err == nil {
			more, err = b.window(windowBytes, limit)
		}
	}
	weight := b.weight()
	if err != nil || weight < objectsize.HeavyBytes {
		return err
	}
	if b.reservation == nil {
		b.reservation = b.limits.Budget.Reservation(who)
	}
	return b.reservation.Work(b.ctx, weight)
}

// binaryWeight bytes are reserved for each byte of Protobuf: two bytes may be an empty message.
const binaryWeight = 4

func (b *body) weight() int64 {
	if b.isText {
		return b.values.Weight()
	}
	return b.size * binaryWeight
}

// window reads the next bytes of the body. The deadline applies only to this read, so
// that the connection survives while the request waits.
func (b *body) window(size int64, limit limit) (more bool, err error) {
	b.setDeadline(time.Now().Add(windowTime))
	buffer := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(b.length-b.size, 0), trustedBytes)))
	_, err = buffer.ReadFrom(io.LimitReader(b.connection, size))
	chunk := buffer.Bytes()
	b.content, b.size = append(b.content, chunk), b.size+int64(len(chunk))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
			Message: fmt.Sprintf("the body of the request arrived too slowly: after %d bytes, less than %d in %s", b.size-int64(len(chunk)), size, windowTime),
		}}
	}
	if err != nil {
		return false, apierrors.NewBadRequest(fmt.Sprintf("read the body of the request: %v", err))
	}
	b.setDeadline(time.Time{})
	if b.size > limit.bytes {
		return false, limit.exceeded("more")
	}
	if b.isText {
		if b.values.Add(chunk); b.values.Count() > limit.values() {
			return false, limit.tooManyValues()
		}
	}
	return int64(len(chunk)) == size, nil
}

// release returns the reservation to the budget.
func (b *body) release() {
	if b.reservation != nil {
		b.reservation.Release()
	}
}

// setDeadline bounds the time of reads from the connection. After the request, HTTP/2 has no stream and would panic.
func (b *body) setDeadline(deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		// Only connections of tests have no deadlines.
		_ = b.control.SetReadDeadline(deadline)
	}
}

// end ends the request. It bounds how long net/http reads the rest of an incomplete body.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if !b.complete {
		_ = b.control.SetReadDeadline(time.Now().Add(unreadTime))
	}
}
