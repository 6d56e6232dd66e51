// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// startFlowControlled starts a server that allows every request, with users whose tokens
// are their names.
func startFlowControlled(t *testing.T, flags ...string) *annex {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	var lines strings.Builder
	for _, user := range []string{"flooder", "neighbour", "stranger"} {
		fmt.Fprintf(&lines, "%s,%s,%s\n", user, user, user)
	}
	expect.NoError(t, os.WriteFile(tokens, []byte(lines.String()), 0o600))
	return startAnnex(t, append([]string{"--token-auth-file=" + tokens, "--authorization-mode=AlwaysAllow"}, flags...)...)
}

const (
	// queues, handSize and queueLength make one flow wait in two queues of three.
	queues, handSize, queueLength = 32, 2, 3
	waiting                       = handSize * queueLength
)

// createSingleSeatLevel creates a priority level with one seat, for some users.
func (a *annex) createSingleSeatLevel(t *testing.T, users ...string) *flowcontrolv1.FlowSchema {
	t.Helper()
	_, err := a.Kube.FlowcontrolV1().PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](1),
				BorrowingLimitPercent:    ptr.To[int32](0),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: handSize, QueueLengthLimit: queueLength},
				},
			},
		},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	var subjects []flowcontrolv1.Subject
	for _, user := range users {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}})
	}
	all := []string{"*"}
	schema := expect.Create(t, a.Kube.FlowcontrolV1().FlowSchemas(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "narrow"},
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      subjects,
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true}},
			}},
		},
	})
	return schema
}

// levelState is the state of a priority level in the debug dump.
type levelState struct{ waiting, executing, rejected int }

func (a *annex) levelState(t *testing.T, name string) levelState {
	t.Helper()
	dump := a.get(t, "/debug/api_priority_and_fairness/dump_priority_levels")
	for line := range strings.Lines(string(dump.Body)) {
		cells := strings.Split(line, ",")
		if strings.TrimSpace(cells[0]) != name || len(cells) < 8 {
			continue
		}
		var numbers []int
		for _, i := range []int{4, 5, 7} {
			number, err := strconv.Atoi(strings.TrimSpace(cells[i]))
			expect.NoError(t, err, "the dump has the line %q", line)
			numbers = append(numbers, number)
		}
		return levelState{numbers[0], numbers[1], numbers[2]}
	}
	t.Fatalf("the dump does not have the level %s: %s", name, dump)
	return levelState{}
}

func (a *annex) waitForLevel(t *testing.T, name string, want levelState) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprintf("level %s: %+v", name, want), func() (bool, string) {
		got := a.levelState(t, name)
		return got == want, fmt.Sprintf("%+v", got)
	})
}

// flood sends creates that keep their seat until they are released: a webhook delays them.
type flood struct {
	annex   *annex
	client  *http.Client
	ctx     context.Context
	running sync.WaitGroup

	seated   chan int // the number of a request that got a seat
	answers  chan response
	released []chan struct{}
	ended    map[int]bool
	sent     int
}

// release lets a request end.
func (f *flood) release(i int) {
	if !f.ended[i] {
		f.ended[i] = true
		close(f.released[i])
	}
}

// newFlood returns a flood of at most so many requests.
func (a *annex) newFlood(t *testing.T, user string, most int) *flood {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	f := &flood{annex: a, client: a.httpClientAs(t, bearerToken(user)), ctx: ctx, seated: make(chan int, most), answers: make(chan response, most), ended: map[int]bool{}}
	for range most {
		f.released = append(f.released, make(chan struct{}))
	}
	hold := newWebhookServer(t, func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview) {
		if i, err := strconv.Atoi(strings.TrimPrefix(review.Request.Name, "flood-")); err == nil {
			f.seated <- i
			select {
			case <-f.released[i]:
			case <-r.Context().Done():
			}
		}
		allow(w, r, review)
	})
	a.installValidatingWebhooks(t, "hold", newWebhook(metav1.NamespaceDefault, "hold", hold.client(), func(h *hook) { h.TimeoutSeconds = ptr.To[int32](30) }))
	a.waitForWebhooks(t, metav1.NamespaceDefault, hold)
	t.Cleanup(func() {
		for i := range f.released {
			f.release(i)
		}
		f.running.Wait()
		cancel()
	})
	return f
}

// send sends some creates at once.
func (f *flood) send(t *testing.T, requests int) {
	t.Helper()
	for range requests {
		i := f.sent
		f.sent++
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"flood-%d"}}`, i)
		f.running.Go(func() {
			answer, err := clients.Send(f.ctx, f.client, http.MethodPost, f.annex.URL+"/api/v1/namespaces/default/configmaps", body)
			if err != nil {
				if f.ctx.Err() == nil {
					t.Errorf("request %d of the flood: %v", i, err)
				}
				return
			}
			f.answers <- answer
		})
	}
}

// nextSeated returns the number of the next request that got its seat.
func (f *flood) nextSeated(t *testing.T) int {
	t.Helper()
	return receive(t, f.seated, "a request of the flood gets a seat")
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case received := <-from:
		return received
	case <-time.After(poll.Timeout):
		t.Fatalf("%s: not within %s", what, poll.Timeout)
	}
	panic("unreachable")
}

// TestFlowControlFlood sends more requests of one client than its priority level accepts.
// The excess is refused, and other clients are served, in other levels and in the same.
func TestFlowControlFlood(t *testing.T) {
	t.Parallel()
	// Of sixty seats a level with one share of some two hundred and fifty gets one.
	// Requests stay in the queues for a quarter of the timeout, which must be longer than the test.
	a := startFlowControlled(t, "--max-requests-inflight=40", "--max-mutating-requests-inflight=20", "--request-timeout=10m")
	schema := a.createSingleSeatLevel(t, "flooder", "neighbour")
	const path = "/api/v1/namespaces/default/configmaps"
	neighbour, stranger := a.httpClientAs(t, bearerToken("neighbour")), a.httpClientAs(t, bearerToken("stranger"))
	poll.UntilDone(t, "the FlowSchema is in force", func() (bool, string) {
		r := send(t, neighbour, http.MethodGet, a.URL+path, "")
		uid := r.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
		return uid == string(schema.UID) && r.Code == http.StatusOK, fmt.Sprintf("%d by the schema %s", r.Code, uid)
	})

	const refused = 10
	f := a.newFlood(t, "flooder", 100)
	f.send(t, 1+waiting+refused)
	seated := f.nextSeated(t)
	for range refused {
		answer := receive(t, f.answers, "a request beyond the queues is refused")
		if answer.Code != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
			t.Errorf("a request beyond the queues: %s, Retry-After %q; want 429 and when to try again", answer, answer.Header.Get("Retry-After"))
		}
	}
	a.waitForLevel(t, "narrow", levelState{waiting: waiting, executing: 1, rejected: refused})

	for range 20 {
		send(t, stranger, http.MethodGet, a.URL+path, "").Expect(t, http.StatusOK, "a client of another level")
		a.get(t, path).Expect(t, http.StatusOK, "the administrator")
	}

	served := make(chan response, 1)
	go func() {
		r, err := clients.Send(t.Context(), neighbour, http.MethodGet, a.URL+path, "")
		expect.Succeeds(t, err, "a client of the same level")
		served <- r
	}()
	a.waitForLevel(t, "narrow", levelState{waiting: waiting + 1, executing: 1, rejected: refused})
	// Requests that waited before are served first. Later ones are not, however many there
	// are; one of them may get a seat before this response arrives.
	var r response
	for turns := 0; r.Code == 0; turns++ {
		if turns > waiting+1 {
			t.Fatalf("%d requests of the flood were served before the other client", turns)
		}
		f.send(t, 2)
		f.release(seated)
		select {
		case r = <-served:
		case seated = <-f.seated:
		case <-time.After(poll.Timeout):
			t.Fatal("no request gets the seat")
		}
	}
	r.Expect(t, http.StatusOK, "a client of the same level")
}

func TestFlowControlObjects(t *testing.T) {
	t.Parallel()
	a := startFlowControlled(t)
	schemas := a.Kube.FlowcontrolV1().FlowSchemas()
	list, err := schemas.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if want := len(bootstrap.MandatoryFlowSchemas) + len(bootstrap.SuggestedFlowSchemas); len(list.Items) != want {
		t.Errorf("%d FlowSchemas are there at the start, want %d", len(list.Items), want)
	}

	// A patch, because annex writes the status at the same time.
	first := []byte(`{"spec":{"matchingPrecedence":9999}}`)
	if _, err := schemas.Patch(t.Context(), "catch-all", types.MergePatchType, first, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("change a mandatory FlowSchema: %v, want invalid", err)
	}
	for _, name := range []string{"catch-all", "global-default"} {
		before := expect.Get(t, schemas, name)
		expect.Delete(t, schemas, name)
		expect.Eventually(t, schemas, name, name+" is recreated", func(after *flowcontrolv1.FlowSchema) bool {
			return after.UID != before.UID
		})
	}

	patch := func(name, content string) {
		t.Helper()
		expect.Patch(t, schemas, name, content)
	}
	// The second is restored in the same pass as the first.
	patch("probes", `{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"matchingPrecedence":77}}`)
	patch("service-accounts", `{"spec":{"matchingPrecedence":77}}`)
	expect.Eventually(t, schemas, "service-accounts", "annex restores its FlowSchema", func(schema *flowcontrolv1.FlowSchema) bool {
		return schema.Spec.MatchingPrecedence == 9000
	})
	if probes, err := schemas.Get(t.Context(), "probes", metav1.GetOptions{}); err != nil || probes.Spec.MatchingPrecedence != 77 {
		t.Errorf("a FlowSchema without auto-update was restored: %v, %v", probes, err)
	}
}

func TestFlowControlDisabled(t *testing.T) {
	t.Parallel()
	a := startFlowControlled(t, "--enable-priority-and-fairness=false")
	r := a.get(t, "/api/v1/namespaces")
	if uid := r.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); r.Code != http.StatusOK || uid != "" {
		t.Errorf("%d by the schema %q, want no schema", r.Code, uid)
	}
	a.get(t, "/debug/api_priority_and_fairness/dump_priority_levels").Expect(t, http.StatusNotFound, "the dump with flow control disabled")
}
