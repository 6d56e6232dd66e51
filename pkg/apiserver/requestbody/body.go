// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

const (
	// windowBytes of a body, and the first objectsize.HeavyBytes, have to arrive within
	// windowTime.
	windowBytes = 1 << 20
	windowTime  = 10 * time.Second
	// unreadTime is how long net/http may read the unused rest of a body.
	unreadTime = time.Second
)

// body is a request body. receive reads it into memory, Read returns it.
type body struct {
	// Closer is that of the connection.
	io.Closer
	connection io.Reader
	control    *http.ResponseController
	budget     *objectsize.Budget
	// ctx ends when the client disconnects or the request times out.
	ctx context.Context
	// length is -1 if unknown.
	length int64
	// isText reports whether the body is JSON or YAML.
	isText bool

	received bool
	// complete is also read by end, which does not wait for a handler that timed out.
	complete    atomic.Bool
	err         error
	size        int64
	values      objectsize.Values
	content     net.Buffers
	reservation *objectsize.Reservation
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) { return b.content.Read(p) }

// receive reads the body once and stores an error in err.
func (b *body) receive(who user.Info, limit limit) {
	if b.received {
		return
	}
	b.received = true
	b.err = b.read(who, limit)
	b.complete.Store(b.err == nil)
}

func (b *body) read(who user.Info, limit limit) error {
	if b.length > limit.bytes {
		return limit.exceeded(fmt.Sprint(b.length))
	}
	more, err := b.window(objectsize.HeavyBytes, limit)
	if err != nil {
		return err
	}
	if more {
		expected := b.length
		if expected < 0 {
			expected = limit.bytes
		}
		if b.reservation, err = b.budget.Reserve(b.ctx, who, expected); err != nil {
			return err
		}
	}
	for more {
		if err = b.reservation.Arrive(b.ctx, windowBytes); err != nil {
			return err
		}
		if more, err = b.window(windowBytes, limit); err != nil {
			return err
		}
	}
	weight := b.weight()
	if weight < objectsize.HeavyBytes {
		return nil
	}
	if b.reservation == nil {
		if b.reservation, err = b.budget.Reserve(b.ctx, who, weight); err != nil {
			return err
		}
	}
	return b.reservation.Work(b.ctx, weight)
}

// binaryWeight bytes are reserved for each byte of Protobuf, of which two may be an empty message.
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
	// Only connections of tests have no deadlines.
	_ = b.control.SetReadDeadline(time.Now().Add(windowTime))
	chunk, err := io.ReadAll(io.LimitReader(b.connection, size))
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
	_ = b.control.SetReadDeadline(time.Time{})
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

// end bounds how long net/http reads the rest of an incomplete body.
func (b *body) end() {
	if !b.complete.Load() {
		_ = b.control.SetReadDeadline(time.Now().Add(unreadTime))
	}
}
