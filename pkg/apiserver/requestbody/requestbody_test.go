// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	fairqueuing "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/annex-dev/annex/pkg/storage/objectsize"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const mib = 1 << 20

func newLimits(largest int64) BodyLimits {
	return BodyLimits{
		MaxBodyBytes: largest, Timeout: time.Minute,
		Small:  func(group string) bool { return group == "authorization.k8s.io" },
		Budget: objectsize.NewBudget(largest, 10*time.Millisecond),
	}
}

// hold reserves parts of the budget for objects in processing.
func hold(t *testing.T, budget *objectsize.Budget, who string, parts int, bytes int64) {
	t.Helper()
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: who})
	for range parts {
		release, err := budget.Acquire(ctx, bytes)
		expect.NoError(t, err)
		t.Cleanup(release)
	}
}

func newRequest(t *testing.T, group string, body io.Reader, length int) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	req.ContentLength = int64(length)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "create", APIGroup: group, APIVersion: "v1", Resource: "widgets"}
	return req.WithContext(request.WithUser(request.WithRequestInfo(req.Context(), info), &user.DefaultInfo{Name: "ann"}))
}

func codecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}

// TestLimits sends bodies of known and of unknown length, the latter in chunks.
func TestLimits(t *testing.T) {
	t.Parallel()
	const custom, review = "example.com", "authorization.k8s.io"
	tests := map[string]struct {
		group string
		size  int
		// busy fills the budget, shares of it with requests of the user.
		busy, share bool
		want        int
		message     string
	}{
		"small":                        {group: custom, size: 1000, busy: true, share: true, want: http.StatusOK},
		"large":                        {group: custom, size: 4 * mib, want: http.StatusOK},
		"large, others are too":        {group: custom, size: 2 * mib, busy: true, want: http.StatusTooManyRequests, message: "other large objects are being written"},
		"large, others of the user":    {group: custom, size: 4 * mib, share: true, want: http.StatusTooManyRequests, message: "large objects of ann are being written"},
		"too large":                    {group: custom, size: 5 * mib, want: http.StatusRequestEntityTooLarge, message: "the limit is 4194304 (--max-object-bytes"},
		"large, kind is compiled in":   {group: review, size: 3 * mib, want: http.StatusOK},
		"too large for a compiled-in":  {group: review, size: 3*mib + 1, want: http.StatusRequestEntityTooLarge, message: "the limit is 3145728"},
		"as large as what counts":      {group: custom, size: objectsize.HeavyBytes, want: http.StatusOK},
		"one less than what is heavy":  {group: custom, size: objectsize.HeavyBytes - 1, busy: true, share: true, want: http.StatusOK},
		"too large for a share, alone": {group: custom, size: 4*mib - 1, want: http.StatusOK},
	}
	for name, test := range tests {
		for _, known := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				limits := newLimits(4 * mib)
				if test.share {
					hold(t, limits.Budget, "ann", 2, 4*mib)
				}
				if test.busy {
					hold(t, limits.Budget, "bob", 2, 4*mib)
				}
				if test.busy && !test.share {
					hold(t, limits.Budget, "eve", 2, 4*mib)
				}
				var got int
				reads := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					content, err := io.ReadAll(req.Body)
					if err != nil {
						t.Error(err)
					}
					got = len(content)
					if _, err := limits.Budget.Acquire(req.Context(), 4*mib); err != nil && test.size >= objectsize.HeavyBytes {
						t.Errorf("a request with a reservation waits: %v", err)
					}
				})
				length := test.size
				if !known {
					length = -1
				}
				recorder := httptest.NewRecorder()
				req := newRequest(t, test.group, strings.NewReader(strings.Repeat("x", test.size)), length)
				WithBody(WithBodyLimits(reads, limits, codecs()), limits).ServeHTTP(recorder, req)
				if recorder.Code != test.want || !strings.Contains(recorder.Body.String(), test.message) {
					t.Errorf("got %d %q, want %d with %q", recorder.Code, recorder.Body, test.want, test.message)
				}
				if test.want == http.StatusOK && got != test.size {
					t.Errorf("the handler read %d bytes of %d", got, test.size)
				}
				if !test.busy && !test.share {
					hold(t, limits.Budget, "ann", 2, 4*mib) // the reservation was released
				}
			})
		}
	}
}

// seats is flow control that inspects a request when it requests a seat.
type seats struct {
	utilflowcontrol.Interface
	seat func(ctx context.Context)
}

func (s seats) Handle(ctx context.Context, _ utilflowcontrol.RequestDigest, _ func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	_ func() fcrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, execute func()) {
	s.seat(ctx)
	execute()
}

// pausing is a body with a pause in it.
type pausing struct {
	io.Reader
	pause time.Duration
}

func (p *pausing) Read(data []byte) (int, error) {
	time.Sleep(p.pause)
	p.pause = 0
	return p.Reader.Read(data)
}

// TestBodyBeforeSeat checks that a request waits for its seat only after its body has
// arrived, and then as long as any other.
func TestBodyBeforeSeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits, patience := newLimits(4*mib), 15*time.Second
		body := &pausing{strings.NewReader(strings.Repeat("x", 2*mib)), 40 * time.Second}
		req := newRequest(t, "example.com", body, 2*mib)
		asked := false
		flow := FlowControl(seats{seat: func(ctx context.Context) {
			asked = true
			deadline, _ := ctx.Deadline()
			if body.pause != 0 || time.Until(deadline) != patience || ctx.Err() != nil {
				t.Errorf("body received: %t, time to wait %s, %v; want it received and %s", body.pause == 0, time.Until(deadline), ctx.Err(), patience)
			}
		}}, limits)
		handler := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			info, _ := request.RequestInfoFrom(req.Context())
			who, _ := request.UserFrom(req.Context())
			ctx, cancel := context.WithTimeout(req.Context(), patience)
			defer cancel()
			flow.Handle(ctx, utilflowcontrol.RequestDigest{RequestInfo: info, User: who}, nil, nil, nil, func() {})
		})
		WithBody(handler, limits).ServeHTTP(httptest.NewRecorder(), req)
		if !asked {
			t.Error("the request never asked for a seat")
		}
		hold(t, limits.Budget, "ann", 2, 4*mib) // the reservation was released
	})
}

// TestSlowReader checks that the reservation is released when the response begins.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	limits := newLimits(4 * mib)
	writes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		hold(t, limits.Budget, "bob", 2, 4*mib)
		hold(t, limits.Budget, "eve", 2, 4*mib)
	})
	req := newRequest(t, "example.com", strings.NewReader(strings.Repeat("x", 4*mib)), 4*mib)
	WithBody(WithBodyLimits(writes, limits, codecs()), limits).ServeHTTP(httptest.NewRecorder(), req)
}
