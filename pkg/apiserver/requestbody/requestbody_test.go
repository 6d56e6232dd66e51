// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	fairqueuing "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const mib = 1 << 20

func newLimits(largest int64) BodyLimits {
	return BodyLimits{
		MaxBodyBytes: largest, Timeout: time.Minute, Lists: lists,
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
				WithBody(WithBodyLimits(reads, codecs()), limits).ServeHTTP(recorder, req)
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

// TestValues sends bodies of many values.
func TestValues(t *testing.T) {
	t.Parallel()
	const largest = 4 * mib
	list := func(value string, count int64) string {
		return `{"a":[` + strings.Repeat(value+",", int(count)-3) + value + "]}"
	}
	few, most := int64(objectsize.HeavyBytes)/32, objectsize.MaxValues(largest)
	tests := map[string]struct {
		body, contentType string
		busy              bool
		want              int
	}{
		"few":                        {body: list("1", few-1), busy: true, want: http.StatusOK},
		"many in a small body":       {body: list("1", few), busy: true, want: http.StatusTooManyRequests},
		"many in a small body, YAML": {body: list("1", few), contentType: "application/apply-patch+yaml", busy: true, want: http.StatusTooManyRequests},
		"the most":                   {body: list("{}", most), want: http.StatusOK},
		"too many":                   {body: list("{}", most+1), want: http.StatusRequestEntityTooLarge},
		"too many in YAML":           {body: strings.Repeat("- a\n", int(most)), contentType: "application/yaml", want: http.StatusRequestEntityTooLarge},
		"deep":                       {body: strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), want: http.StatusRequestEntityTooLarge},
		"Protobuf":                   {body: list("1", 2*few), contentType: "application/vnd.kubernetes.protobuf", want: http.StatusOK},
		"Protobuf, busy":             {body: strings.Repeat("x", objectsize.HeavyBytes/4), contentType: "application/vnd.kubernetes.protobuf", busy: true, want: http.StatusTooManyRequests},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := newLimits(largest)
			if test.busy {
				hold(t, limits.Budget, "bob", 2, largest)
				hold(t, limits.Budget, "eve", 2, largest)
			}
			recorder := httptest.NewRecorder()
			req := newRequest(t, "example.com", strings.NewReader(test.body), len(test.body))
			req.Header.Set("Content-Type", test.contentType)
			WithBody(WithBodyLimits(http.NotFoundHandler(), codecs()), limits).ServeHTTP(recorder, req)
			if test.want == http.StatusOK {
				test.want = http.StatusNotFound
			}
			if recorder.Code != test.want {
				t.Errorf("got %d %q, want %d", recorder.Code, recorder.Body, test.want)
			}
		})
	}
}

// stalled is a body that ends before its length.
type stalled struct {
	io.Reader
	until <-chan struct{}
}

func (s stalled) Read(data []byte) (int, error) {
	if n, err := s.Reader.Read(data); err == nil {
		return n, nil
	}
	<-s.until
	return 0, io.ErrUnexpectedEOF
}

// TestStalledBodies checks that bodies which were only announced leave room for others.
func TestStalledBodies(t *testing.T) {
	t.Parallel()
	limits := newLimits(4 * mib)
	const bodies = 50 // more than have room as a whole
	end, begun := make(chan struct{}), sync.WaitGroup{}
	var stalledRequests sync.WaitGroup
	begun.Add(bodies)
	for i := range bodies {
		beginning := &announced{strings.NewReader(strings.Repeat("x", objectsize.HeavyBytes+1)), sync.OnceFunc(begun.Done)}
		req := newRequest(t, "example.com", stalled{beginning, end}, 4*mib)
		req = req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: fmt.Sprint(i)}))
		stalledRequests.Go(func() {
			WithBody(WithBodyLimits(http.NotFoundHandler(), codecs()), limits).ServeHTTP(httptest.NewRecorder(), req)
		})
	}
	defer stalledRequests.Wait()
	defer close(end)
	begun.Wait()
	recorder := httptest.NewRecorder()
	req := newRequest(t, "example.com", strings.NewReader(strings.Repeat("x", 4*mib)), 4*mib)
	WithBody(WithBodyLimits(http.NotFoundHandler(), codecs()), limits).ServeHTTP(recorder, req)
	if recorder.Code != http.StatusNotFound {
		t.Errorf("a body beside others that were announced: got %d %q", recorder.Code, recorder.Body)
	}
}

// announced calls begun when all that it has was read.
type announced struct {
	io.Reader
	begun func()
}

func (a *announced) Read(data []byte) (int, error) {
	n, err := a.Reader.Read(data)
	if err != nil {
		a.begun()
	}
	return n, err
}

// TestAuthorizationBeforeBody checks that a large body is received only for a request that is allowed.
func TestAuthorizationBeforeBody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		length   int
		decision authorizer.Decision
		received bool
	}{
		"allowed":            {length: 2 * mib, decision: authorizer.DecisionAllow, received: true},
		"no opinion":         {length: 2 * mib, decision: authorizer.DecisionNoOpinion},
		"denied":             {length: 2 * mib, decision: authorizer.DecisionDeny},
		"denied, no length":  {length: -1, decision: authorizer.DecisionDeny},
		"denied, small":      {length: objectsize.HeavyBytes, decision: authorizer.DecisionDeny, received: true},
		"allowed, no length": {length: -1, decision: authorizer.DecisionAllow, received: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := newLimits(4 * mib)
			limits.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser().GetName() != "ann" || a.GetResource() != "widgets" {
					t.Errorf("%s is authorized for %s, want ann for widgets", a.GetUser().GetName(), a.GetResource())
				}
				return test.decision, "", nil
			})
			content := strings.NewReader(strings.Repeat("x", max(test.length, mib)))
			req := newRequest(t, "example.com", content, test.length)
			seated := false
			flow := FlowControl(seats{seat: func(context.Context) {
				seated = true
				if received := content.Len() == 0; received != test.received {
					t.Errorf("the body was received: %t, want %t", received, test.received)
				}
			}})
			handler := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				info, _ := request.RequestInfoFrom(req.Context())
				who, _ := request.UserFrom(req.Context())
				flow.Handle(req.Context(), utilflowcontrol.RequestDigest{RequestInfo: info, User: who}, nil, nil, nil, func() {})
			})
			WithBody(handler, limits).ServeHTTP(httptest.NewRecorder(), req)
			if !seated {
				t.Error("the request never asked for a seat, in which it is refused")
			}
		})
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
		}})
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
	WithBody(WithBodyLimits(writes, codecs()), limits).ServeHTTP(httptest.NewRecorder(), req)
}

// ending is the response of a request that ends before its handler: http2 panics in SetReadDeadline then.
type ending struct {
	*httptest.ResponseRecorder
	ended atomic.Bool
	late  atomic.Int32
}

// SetReadDeadline counts calls after the end.
func (e *ending) SetReadDeadline(time.Time) error {
	if e.ended.Load() {
		e.late.Add(1)
	}
	return nil
}

// TestHandlerAfterRequest: the handler of a request that timed out sets no deadlines on its connection.
func TestHandlerAfterRequest(t *testing.T) {
	t.Parallel()
	response := &ending{ResponseRecorder: httptest.NewRecorder()}
	end, handled := make(chan struct{}), make(chan struct{})
	outlives := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		go func() {
			defer close(handled)
			<-end
			WithBodyLimits(http.NotFoundHandler(), codecs()).ServeHTTP(httptest.NewRecorder(), req)
		}()
	})
	WithBody(outlives, newLimits(4*mib)).ServeHTTP(response, newRequest(t, "example.com", strings.NewReader("x"), 1))
	response.ended.Store(true)
	close(end)
	<-handled
	if late := response.late.Load(); late > 0 {
		t.Errorf("%d deadlines were set after the request", late)
	}
}
