// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package heavywrites

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	fairqueuing "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/annex-dev/annex/pkg/storage/objectsize"
)

const mib = 1 << 20

func newRequest(t *testing.T, verb string, size int, known bool) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis/example.com/v1/widgets", strings.NewReader(strings.Repeat("x", size)))
	if !known {
		req.ContentLength = -1
	}
	info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: "example.com", APIVersion: "v1", Resource: "widgets"}
	return req.WithContext(request.WithRequestInfo(req.Context(), info))
}

// TestLimits sends bodies while 3 of the 4 MiB of the budget are taken.
func TestLimits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		verb  string
		size  int
		known bool
		want  int
		says  string
	}{
		"small":                           {verb: "create", size: 1000, known: true, want: http.StatusOK},
		"small, of unknown length":        {verb: "create", size: 1000, want: http.StatusOK},
		"nearly large, of unknown length": {verb: "patch", size: mib - 1, want: http.StatusOK},
		"fits into the budget":            {verb: "update", size: mib, known: true, want: http.StatusOK},
		"does not fit now":                {verb: "update", size: mib + 1, known: true, want: http.StatusTooManyRequests, says: "try again later"},
		"does not fit, of unknown length": {verb: "patch", size: 2 * mib, want: http.StatusTooManyRequests, says: "try again later"},
		"too large": {verb: "create", size: 5 * mib, known: true, want: http.StatusRequestEntityTooLarge,
			says: "the request has 5242880 bytes, the limit is 4194304"},
		"brings no object": {verb: "deletecollection", size: 2 * mib, known: true, want: http.StatusOK},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := objectsize.NewBudget(4*mib, 10*time.Millisecond)
			_, release, err := budget.Acquire(t.Context(), 3*mib)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			limits := Limits{MaxBodyBytes: 4 * mib, Budget: budget}
			scheme := runtime.NewScheme()
			metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
			codecs := serializer.NewCodecFactory(scheme)
			reads := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if _, err := io.ReadAll(req.Body); err != nil {
					http.Error(w, err.Error(), http.StatusTooManyRequests)
				}
			})
			recorder := httptest.NewRecorder()
			WithLimits(reads, limits, codecs).ServeHTTP(recorder, newRequest(t, test.verb, test.size, test.known))
			if recorder.Code != test.want || !strings.Contains(recorder.Body.String(), test.says) {
				t.Errorf("got %d %q, want %d with %q", recorder.Code, recorder.Body, test.want, test.says)
			}
			if _, again, err := budget.Acquire(t.Context(), mib); err != nil {
				t.Errorf("the part was not given back: %v", err)
			} else {
				again()
			}
		})
	}
}

// estimator is flow control that only asks what a request costs.
type estimator struct {
	utilflowcontrol.Interface
	maxSeats uint64
	got      fcrequest.WorkEstimate
}

func (e *estimator) GetMaxSeats(level string) uint64 {
	if level != "workload" {
		return 1
	}
	return e.maxSeats
}

func (e *estimator) Handle(_ context.Context, _ utilflowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() fcrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, _ func()) {
	note(nil, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "workload"}}, "")
	e.got = estimate()
}

func TestSeats(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		size     int
		maxSeats uint64
		want     uint64
	}{
		"small":                        {size: 1000, want: 1},
		"of two MiB":                   {size: 2 * mib, want: 2},
		"of the largest size":          {size: 16 * mib, want: 9},
		"larger than upstream's limit": {size: 64 * mib, want: 10},
		"on a small level":             {size: 16 * mib, maxSeats: 3, want: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &estimator{maxSeats: test.maxSeats}
			flow := FlowControl(inner)
			handler := WithLength(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				flow.Handle(req.Context(), utilflowcontrol.RequestDigest{},
					func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {},
					func() fcrequest.WorkEstimate { return fcrequest.WorkEstimate{InitialSeats: 1, FinalSeats: 2} }, nil, nil)
			}))
			handler.ServeHTTP(httptest.NewRecorder(), newRequest(t, "create", test.size, true))
			if inner.got.InitialSeats != test.want || inner.got.FinalSeats != 2 {
				t.Errorf("%d bytes take %d and then %d seats, want %d and 2", test.size, inner.got.InitialSeats, inner.got.FinalSeats, test.want)
			}
		})
	}
}
