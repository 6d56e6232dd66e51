// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// auditEverything is a policy that logs everything except requests of annex itself.
const auditEverything = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver"]}
- {level: RequestResponse}
`

// auditFlags writes a policy and returns the flags for it and a log.
func auditFlags(t *testing.T, policy string) (flags []string, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "logs", "audit.log")
	return []string{"--audit-policy-file=" + writeFile(t, "policy.yaml", []byte(policy)), "--audit-log-path=" + log}, log
}

// auditEvents reads a log.
func auditEvents(t *testing.T, log []byte) []auditv1.Event {
	t.Helper()
	var events []auditv1.Event
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, len(log)+1)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("read the audit log: %v: %s", err, lines.Text())
		}
		events = append(events, event)
	}
	return events
}

// describeAudit returns verb, resource and name of a request, or its path.
func describeAudit(event auditv1.Event) string {
	if event.ObjectRef == nil {
		return event.Verb + " " + event.RequestURI
	}
	return strings.TrimSpace(event.Verb + " " + event.ObjectRef.Resource + " " + event.ObjectRef.Name)
}

// eventAbout returns the only event of a stage about a request.
func eventAbout(t *testing.T, events []auditv1.Event, what string, stage auditv1.Stage) auditv1.Event {
	t.Helper()
	var found []auditv1.Event
	for _, event := range events {
		if describeAudit(event) == what && event.Stage == stage {
			found = append(found, event)
		}
	}
	if len(found) != 1 {
		t.Errorf("%d events of %q in stage %s, want one", len(found), what, stage)
		return auditv1.Event{}
	}
	return found[0]
}

func (a *annex) createConfigMap(t *testing.T, namespace, name, text string) *corev1.ConfigMap {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": text}}
	return expect.Create(t, a.Kube.CoreV1().ConfigMaps(namespace), config)
}

func (a *annex) createSecret(t *testing.T, namespace, name, text string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"k": text}}
	return expect.Create(t, a.Kube.CoreV1().Secrets(namespace), secret)
}

// TestAuditLevels logs each resource at the level of the policy: compiled-in kinds of
// Kubernetes and of annex, custom resources and paths.
func TestAuditLevels(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, anySchema)
	flags, log := auditFlags(t, `
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, users: ["system:apiserver"]}
- {level: None, resources: [{group: "", resources: [namespaces]}]}
- {level: Metadata, omitStages: [RequestReceived], resources: [{group: "", resources: [secrets]}]}
- {level: Request, resources: [{group: "", resources: [configmaps]}]}
- {level: RequestResponse, omitStages: [RequestReceived], resources: [{group: hosting.annex.dev}, {group: `+crd.Spec.Group+`}]}
- {level: Metadata, nonResourceURLs: [/version]}
- {level: None}
`)
	widgets := startAnnex(t, flags...).installCRD(t, crd)
	a := widgets.annex
	const text = "some-text"
	a.createSecret(t, widgets.namespace, "s", text)
	a.createConfigMap(t, widgets.namespace, "c", text)
	a.newStore(t, "audited")
	widgets.create(t, "v1", "w", "spec: {text: "+text+"}")
	auditID := a.get(t, "/version", "Audit-ID", "my-own-id").Header.Get("Audit-ID")
	a.get(t, "/apis")
	a.Stop(t) // the log is complete

	if mode := fileMode(t, log); mode != 0o600 {
		t.Errorf("the log has mode %s", mode)
	}
	if mode := fileMode(t, filepath.Dir(log)); mode != 0o700 {
		t.Errorf("its folder has mode %s", mode)
	}
	events := auditEvents(t, readFile(t, log))
	for _, event := range events {
		if event.ObjectRef != nil && event.ObjectRef.Resource == "namespaces" || event.RequestURI == "/apis" {
			t.Errorf("an omitted request is in the log: %s", describeAudit(event))
		}
	}
	tests := map[string]struct {
		level             auditv1.Level
		request, response bool
		stages            int
	}{
		"create secrets s":      {auditv1.LevelMetadata, false, false, 1},
		"create configmaps c":   {auditv1.LevelRequest, true, false, 2},
		"create stores audited": {auditv1.LevelRequestResponse, true, true, 1},
		"create widgets w":      {auditv1.LevelRequestResponse, true, true, 1},
		"get /version":          {auditv1.LevelMetadata, false, false, 2},
	}
	for what, test := range tests {
		event := eventAbout(t, events, what, auditv1.StageResponseComplete)
		if event.Level != test.level || (event.RequestObject != nil) != test.request || (event.ResponseObject != nil) != test.response {
			t.Errorf("%s: level %s, request %v, response %v", what, event.Level, event.RequestObject, event.ResponseObject)
		}
		if !slices.Contains(event.User.Groups, "system:masters") || len(event.SourceIPs) == 0 || event.UserAgent == "" {
			t.Errorf("%s: no user: %+v", what, event)
		}
		if event.ResponseStatus == nil || event.ResponseStatus.Code/100 != 2 || event.Annotations["authorization.k8s.io/decision"] != "allow" {
			t.Errorf("%s: no result: %+v, %v", what, event.ResponseStatus, event.Annotations)
		}
		if body, err := json.Marshal([]any{event.RequestObject, event.ResponseObject}); err != nil || bytes.Contains(body, []byte("managedFields")) {
			t.Errorf("%s: managed fields are in the log: %s, %v", what, body, err)
		}
		if stages := len(slices.DeleteFunc(slices.Clone(events), func(e auditv1.Event) bool { return e.AuditID != event.AuditID })); stages != test.stages {
			t.Errorf("%s: %d stages, want %d", what, stages, test.stages)
		}
	}
	if strings.Contains(string(readFile(t, log)), `"data":{"k":"c29tZS10ZXh0"}`) {
		t.Error("the content of a secret is in the log")
	}
	if event := eventAbout(t, events, "get /version", auditv1.StageResponseComplete); event.AuditID != "my-own-id" || auditID != "my-own-id" {
		t.Errorf("the id that the client gave: %q in the log, %q in the answer", event.AuditID, auditID)
	}
}

func fileMode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	expect.NoError(t, err)
	return info.Mode().Perm()
}

// TestAuditOfRefusedRequests finds refused requests in the log, whatever refused them.
func TestAuditOfRefusedRequests(t *testing.T) {
	t.Parallel()
	flags, log := auditFlags(t, auditEverything)
	tokens := writeTokens(t)
	a := startAnnex(t, append(flags, "--token-auth-file="+tokens)...)
	crowdedOut := a.exhaustPriorityLevel(t, "bob", "events")
	refused := map[types.UID]struct {
		login        func(*http.Client) *http.Client
		method, path string
		body         string
		code         int32
		user, reason string
	}{
		"unknown":  {code: 401, method: "GET", path: "/api/v1/namespaces", login: func(*http.Client) *http.Client { return a.httpClientAs(t, bearerToken("wrong")) }},
		"no login": {code: 401, method: "DELETE", path: "/api/v1/namespaces/default", login: func(*http.Client) *http.Client { return a.httpClientAs(t, nil) }},
		"outsider": {
			code: 403, method: "GET", path: "/api/v1/namespaces/default/secrets/s", user: "bob", reason: "forbid",
			login: func(*http.Client) *http.Client { return a.httpClientAs(t, bearerToken(outsiderToken)) },
		},
		"admission": {
			code: 422, method: "POST", path: "/apis/apiregistration.k8s.io/v1/apiservices", user: "annex-admin", reason: "allow",
			body: `{"metadata":{"name":"v1.elsewhere.example.com"},"spec":{"group":"elsewhere.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"service":{"namespace":"a","name":"b"}}}`,
		},
		"validation": {
			code: 422, method: "POST", path: "/api/v1/namespaces/default/configmaps", user: "annex-admin", reason: "allow",
			body: `{"metadata":{"name":"Not A Name"}}`,
		},
		"missing": {code: 404, method: "GET", path: "/apis/nothing.example.com/v1/things", user: "annex-admin", reason: "allow"},
	}
	for id, request := range refused {
		client := a.HTTP
		if request.login != nil {
			client = request.login(client)
		}
		if got := send(t, client, request.method, a.URL+request.path, request.body, "Audit-ID", string(id)); got.Code != int(request.code) {
			t.Errorf("%s: %s, want %d", id, got, request.code)
		}
	}
	a.Stop(t)
	events := map[types.UID]auditv1.Event{}
	for _, event := range auditEvents(t, readFile(t, log)) {
		events[event.AuditID] = event
	}
	if event := events[crowdedOut]; event.ResponseStatus == nil || event.ResponseStatus.Code != http.StatusTooManyRequests || event.User.Username != "bob" {
		t.Errorf("flow control: the log has %+v of %s by %q", event.ResponseStatus, describeAudit(event), event.User.Username)
	}
	for id, request := range refused {
		event := events[id]
		if event.ResponseStatus == nil || event.ResponseStatus.Code != request.code || event.User.Username != request.user || event.RequestURI != request.path {
			t.Errorf("%s: the log has %+v of %s by %q", id, event.ResponseStatus, describeAudit(event), event.User.Username)
		}
		if got := event.Annotations["authorization.k8s.io/decision"]; got != request.reason {
			t.Errorf("%s: the decision is %q, want %q", id, got, request.reason)
		}
		if request.body != "" && event.RequestObject == nil {
			t.Errorf("%s: the log lacks the request", id)
		}
	}
}

// exhaustPriorityLevel limits a user to one request for a resource at a time, and returns
// the audit ID of a request that got 429.
func (a *annex) exhaustPriorityLevel(t *testing.T, user, resource string) types.UID {
	t.Helper()
	closed := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "closed"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(0)),
				BorrowingLimitPercent:    new(int32(0)),
				LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	flows := a.Kube.FlowcontrolV1()
	expect.Create(t, flows.PriorityLevelConfigurations(), closed)
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "closed"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: closed.Name},
			MatchingPrecedence:         10,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{resource}, Namespaces: []string{"*"},
				}},
			}},
		},
	}
	expect.Create(t, flows.FlowSchemas(), schema)
	login := a.httpClientAs(t, bearerToken(outsiderToken))
	var refused atomic.Pointer[types.UID]
	var sent atomic.Int64
	poll.UntilDone(t, user+" gets 429", func() (bool, string) {
		var requests sync.WaitGroup
		for range 16 {
			requests.Go(func() {
				id := types.UID(fmt.Sprint("crowded-", sent.Add(1)))
				got, err := clients.Send(t.Context(), login, http.MethodGet, a.URL+"/api/v1/namespaces/default/"+resource, "", "Audit-ID", string(id))
				if err == nil && got.Code == http.StatusTooManyRequests && got.Header.Get("Retry-After") != "" {
					refused.Store(&id)
				}
			})
		}
		requests.Wait()
		return refused.Load() != nil, fmt.Sprint(sent.Load(), " requests were answered")
	})
	return *refused.Load()
}

// TestAuditRotation fills a log that is rotated at 1 MB, the minimum.
func TestAuditRotation(t *testing.T) {
	t.Parallel()
	flags, log := auditFlags(t, auditEverything)
	old := strings.TrimSuffix(log, ".log") + "-2020-01-01T00-00-00.000.log"
	expect.NoError(t, os.MkdirAll(filepath.Dir(log), 0o700))
	for _, file := range []string{old, filepath.Join(filepath.Dir(log), "other.log")} {
		expect.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
	}
	a := startAnnex(t, append(flags, "--audit-log-maxsize=1", "--audit-log-maxbackup=2", "--audit-log-maxage=1")...)
	text := strings.Repeat("x", 300<<10)
	for i := range 8 { // each is logged twice, as request and as response
		a.createConfigMap(t, "default", fmt.Sprint("c", i), text)
	}
	files := func() []string {
		found, err := filepath.Glob(strings.TrimSuffix(log, ".log") + "*.log")
		expect.NoError(t, err)
		return found
	}
	poll.UntilDone(t, "one log and two old ones", func() (bool, string) {
		found := files()
		return len(found) == 3 && !slices.Contains(found, old), fmt.Sprint(found)
	})
	for _, file := range files() {
		info, err := os.Stat(file)
		expect.NoError(t, err)
		if info.Mode().Perm() != 0o600 || info.Size() > 1<<20 {
			t.Errorf("%s has mode %s and %d bytes", file, info.Mode(), info.Size())
		}
		auditEvents(t, readFile(t, file)) // lines are whole
	}
	if got := string(readFile(t, filepath.Dir(log), "other.log")); got != "old\n" {
		t.Errorf("the other file became %q", got)
	}
}

// TestAuditLogWithoutRotation logs in the legacy format.
func TestAuditLogWithoutRotation(t *testing.T) {
	t.Parallel()
	flags, log := auditFlags(t, auditEverything)
	a := startAnnex(t, append(flags, "--audit-log-maxsize=0", "--audit-log-format=legacy", "--audit-log-mode=batch")...)
	a.createConfigMap(t, "default", "c", "text")
	a.Stop(t)
	if text := string(readFile(t, log)); !strings.Contains(text, `method="create"`) || fileMode(t, log) != 0o600 {
		t.Errorf("mode %s: %s", fileMode(t, log), text)
	}
}

// TestAuditFlushesOnShutdown ends annex during requests. Each answered request is in the
// log and was sent to the webhook, although both batch.
func TestAuditFlushesOnShutdown(t *testing.T) {
	t.Parallel()
	collector := startAuditCollector(t, nil)
	flags, log := auditFlags(t, auditEverything)
	dataDir := t.TempDir()
	p := startProcess(t, dataDir, append(flags, "--audit-log-mode=batch",
		"--audit-webhook-config-file="+collector.config, "--audit-webhook-batch-max-wait=1h", "--audit-webhook-batch-max-size=1000000")...)
	a := clientsOf(t, p, dataDir)
	var answered sync.Map
	var count atomic.Int64
	var writers sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("c-%d-%d", writer, i)
				config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
				_, err := a.Kube.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})
				if err != nil {
					return
				}
				answered.Store("create configmaps "+name, true)
				count.Add(1)
			}
		})
	}
	poll.UntilDone(t, "50 writes", func() (bool, string) {
		n := count.Load()
		return n >= 50, fmt.Sprint(n, " were answered")
	})
	if got := len(collector.events()); got > 0 {
		t.Errorf("%d events were sent before the batch was full", got)
	}
	expect.NoError(t, p.Stop(poll.Timeout))
	writers.Wait()
	logged, sent := map[string]bool{}, map[string]bool{}
	for _, event := range auditEvents(t, readFile(t, log)) {
		logged[describeAudit(event)] = true
	}
	for _, event := range collector.events() {
		sent[describeAudit(event)] = true
	}
	answered.Range(func(key, _ any) bool {
		if what := key.(string); !logged[what] || !sent[what] {
			t.Errorf("%s was answered: in the log %t, sent %t", what, logged[what], sent[what])
		}
		return true
	})
	t.Logf("%d requests were answered", count.Load())
}

// TestAuditWebhook sends events to a webhook that fails at first.
func TestAuditWebhook(t *testing.T) {
	t.Parallel()
	var refusals atomic.Int64
	collector := startAuditCollector(t, func(w http.ResponseWriter) bool {
		if refusals.Add(1) > 2 {
			return true
		}
		http.Error(w, "not yet", http.StatusServiceUnavailable)
		return false
	})
	flags, log := auditFlags(t, auditEverything)
	a := startAnnex(t, append(flags, "--audit-webhook-config-file="+collector.config, "--audit-webhook-initial-backoff=1ms",
		"--audit-webhook-batch-max-wait=10ms", "--audit-webhook-batch-throttle-enable=false",
		"--audit-webhook-truncate-enabled", "--audit-webhook-truncate-max-event-size=20000")...)
	namespace := a.newNamespace(t)
	a.createConfigMap(t, namespace, "small", "text")
	a.createConfigMap(t, namespace, "large", strings.Repeat("x", 30_000))
	poll.UntilDone(t, "both events are sent", func() (bool, string) {
		n := 0
		for _, event := range collector.events() {
			if what := describeAudit(event); what == "create configmaps small" || what == "create configmaps large" {
				n++
			}
		}
		return n >= 2, fmt.Sprint(n, " of them")
	})
	small := eventAbout(t, collector.events(), "create configmaps small", auditv1.StageResponseComplete)
	large := eventAbout(t, collector.events(), "create configmaps large", auditv1.StageResponseComplete)
	if small.RequestObject == nil || small.ResponseObject == nil || small.Annotations["audit.k8s.io/truncated"] != "" {
		t.Errorf("a small event is not whole: %+v", small)
	}
	if large.RequestObject != nil || large.ResponseObject != nil || large.Annotations["audit.k8s.io/truncated"] != "true" {
		t.Errorf("a large event is not truncated: %v", large.Annotations)
	}
	if refusals.Load() < 3 {
		t.Errorf("the webhook was asked %d times", refusals.Load())
	}
	a.Stop(t)
	if logged := eventAbout(t, auditEvents(t, readFile(t, log)), "create configmaps large", auditv1.StageResponseComplete); logged.RequestObject == nil {
		t.Error("an event that is truncated for the webhook is also truncated in the log")
	}
}

// TestAuditBlockingStrict refuses requests that cannot be recorded.
func TestAuditBlockingStrict(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	collector := startAuditCollector(t, func(w http.ResponseWriter) bool {
		if down.Load() {
			http.Error(w, "down", http.StatusInternalServerError)
		}
		return !down.Load()
	})
	policy := writeFile(t, "policy.yaml", []byte(`
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: Metadata, resources: [{group: "", resources: [configmaps]}]}
`))
	a := startAnnex(t, "--audit-policy-file="+policy, "--audit-webhook-config-file="+collector.config,
		"--audit-webhook-mode=blocking-strict", "--audit-webhook-initial-backoff=1ms")
	a.createConfigMap(t, "default", "recorded", "text")
	if got := eventAbout(t, collector.events(), "create configmaps recorded", auditv1.StageResponseComplete); got.ResponseStatus.Code != http.StatusCreated {
		t.Errorf("the record: %+v", got)
	}
	down.Store(true)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "unrecorded"}}
	_, err := a.Kube.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})
	expect.Error(t, err, "failed to store audit event")
	down.Store(false)
	if _, err := a.Kube.CoreV1().ConfigMaps("default").Get(t.Context(), "unrecorded", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a request was executed without a record: %v", err)
	}
}

// auditCollector is a webhook that keeps the received events.
type auditCollector struct {
	config string // the path of its kubeconfig

	mu       sync.Mutex
	received []auditv1.Event
}

func (c *auditCollector) events() []auditv1.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.received)
}

// startAuditCollector serves a collector with TLS to clients with a certificate. accept,
// if not nil, may respond instead.
func startAuditCollector(t *testing.T, accept func(http.ResponseWriter) bool) *auditCollector {
	t.Helper()
	c := &auditCollector{}
	authority := newAuthority(t)
	url := authority.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if accept != nil && !accept(w) {
			return
		}
		list := &auditv1.EventList{}
		if err := json.NewDecoder(r.Body).Decode(list); err != nil || list.Kind != "EventList" {
			t.Errorf("not a list of events: %v, %v", list.TypeMeta, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.received = append(c.received, list.Items...)
	}))
	certPEM, keyPEM := authority.issue(t, "annex")
	c.config = writeFile(t, "webhook.kubeconfig", fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: collector, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: annex, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: collector, context: {cluster: collector, user: annex}}]
current-context: collector
`, url, authority.file(t), writeFile(t, "cert", certPEM), writeFile(t, "key", keyPEM)))
	return c
}

// serve serves with TLS to clients with a certificate of the authority.
func (a *authority) serve(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, "server"))
	expect.NoError(t, err)
	server, _ := clients.ServeTLS(t, handler, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert})
	return server.URL
}
