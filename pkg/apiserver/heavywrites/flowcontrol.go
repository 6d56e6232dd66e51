// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package heavywrites

import (
	"context"
	"net/http"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	fairqueuing "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

const (
	// bytesPerSeat is how much of a body counts as one more request.
	bytesPerSeat = 2 << 20

	// maxSeats is what upstream lets a write have at the most.
	maxSeats = 10
)

type lengthKey struct{}

// WithLength tells FlowControl how large a request is. It belongs outside of flow
// control.
func WithLength(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength >= bytesPerSeat {
			req = req.WithContext(context.WithValue(req.Context(), lengthKey{}, req.ContentLength))
		}
		handler.ServeHTTP(w, req)
	})
}

// FlowControl has requests with large bodies take more seats than others.
func FlowControl(inner utilflowcontrol.Interface) utilflowcontrol.Interface {
	return &flowControl{inner}
}

type flowControl struct {
	utilflowcontrol.Interface
}

// Handle implements utilflowcontrol.Interface.
func (f *flowControl) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() fcrequest.WorkEstimate, noteQueued fairqueuing.QueueNoteFn, execute func()) {
	length, ok := ctx.Value(lengthKey{}).(int64)
	if !ok {
		f.Interface.Handle(ctx, digest, note, estimate, noteQueued, execute)
		return
	}
	var level string
	noteLevel := func(schema *flowcontrolv1.FlowSchema, priority *flowcontrolv1.PriorityLevelConfiguration, distinguisher string) {
		level = priority.Name
		note(schema, priority, distinguisher)
	}
	estimateHeavy := func() fcrequest.WorkEstimate {
		work := estimate()
		work.InitialSeats = max(work.InitialSeats, f.seats(level, length))
		return work
	}
	f.Interface.Handle(ctx, digest, noteLevel, estimateHeavy, noteQueued, execute)
}

// seats of a body: more than the level hands out to one request it never gets.
func (f *flowControl) seats(level string, length int64) uint64 {
	limit := f.GetMaxSeats(level)
	if limit == 0 || limit > maxSeats {
		limit = maxSeats
	}
	return min(1+uint64(length)/bytesPerSeat, limit)
}
