// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// pair is annex and an unmodified apiextensions-apiserver over one etcd.
type pair struct {
	etcd            *etcdtest.TCP
	annex, upstream *server
	conversion      *apiextensionsv1.CustomResourceConversion
}

type server struct {
	url     string
	http    *http.Client
	dynamic dynamic.Interface
	stop    func()
}

const etcdPrefix = "/registry"

// startPair starts both over a new etcd.
func startPair(t testing.TB) *pair {
	t.Helper()
	p := newPair(t)
	p.startUpstream(t)
	p.startAnnex(t)
	return p
}

// newPair starts an etcd for both.
func newPair(t testing.TB) *pair {
	t.Helper()
	return &pair{etcd: etcdtest.StartTCP(t, nil), conversion: startConversion(t)}
}

// compact removes all previous values from etcd.
func (p *pair) compact(t testing.TB) {
	t.Helper()
	client := v3client.New(p.etcd.Server)
	defer client.Close()
	if _, err := client.Compact(t.Context(), p.etcd.Server.KV().Rev()); !errors.Is(err, rpctypes.ErrCompacted) {
		expect.NoError(t, err)
	}
}

// startAnnex starts annex without compression: upstream cannot read compressed values.
func (p *pair) startAnnex(t testing.TB, flags ...string) {
	t.Helper()
	s := testserver.Start(t, append(flags, "--etcd-servers="+p.etcd.URL, "--etcd-prefix="+etcdPrefix, "--storage-compression=None")...)
	p.annex = newServer(t, s.AnnexConfig, func() { s.Stop(t) })
}

func newServer(t testing.TB, config *restclient.Config, stop func()) *server {
	t.Helper()
	client, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	objects, err := dynamic.NewForConfig(config)
	expect.NoError(t, err)
	return &server{url: config.Host, http: client, dynamic: objects, stop: stop}
}

// request is a read.
type request struct {
	path, accept, userAgent, encoding string
}

func (r request) String() string {
	return fmt.Sprintf("GET %s (Accept %q, User-Agent %q, Accept-Encoding %q)", r.path, r.accept, r.userAgent, r.encoding)
}

// answer has the parts of a response that are compared.
type answer struct {
	code                          int
	contentType, encoding, vary   string
	warnings, retryAfter, noSniff string
	body                          string
}

func (s *server) read(ctx context.Context, r request) (answer, error) {
	response, content, err := s.get(ctx, r)
	if err != nil {
		return answer{}, err
	}
	h := response.Header
	return answer{
		code: response.StatusCode, contentType: h.Get("Content-Type"), encoding: h.Get("Content-Encoding"), vary: h.Get("Vary"),
		warnings: strings.Join(h.Values("Warning"), ";"), retryAfter: h.Get("Retry-After"), noSniff: h.Get("X-Content-Type-Options"),
		body: normalized(string(content)),
	}, nil
}

// continueToken returns the token of a page, empty if it is the last.
func (s *server) continueToken(ctx context.Context, r request) (string, error) {
	_, content, err := s.get(ctx, r)
	if err != nil {
		return "", err
	}
	if token := continueSeen.FindSubmatch(content); token != nil {
		return string(token[1]), nil
	}
	return "", nil
}

// get returns a response and its body without compression.
func (s *server) get(ctx context.Context, r request) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+r.path, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", r.accept)
	req.Header.Set("User-Agent", r.userAgent)
	if r.encoding != "" {
		req.Header.Set("Accept-Encoding", r.encoding)
	}
	response, err := s.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body := response.Body
	if response.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return nil, nil, err
		}
	}
	content, err := io.ReadAll(body)
	return response, content, err
}

var (
	listVersion = regexp.MustCompile(`("metadata":\s*\{[^{}]*?"resourceVersion":\s*")\d+("\s*\}\s*\}\s*)$`)
	listFirst   = regexp.MustCompile(`^(\{"kind":"[A-Za-z]*List","apiVersion":"[^"]*","metadata":\{"resourceVersion":")\d+(")`)
	tooLarge    = regexp.MustCompile(`(Too large resource version: \d+, current: )\d+`)
	tooOld      = regexp.MustCompile(`(too old resource version: \d+ \()\d+`)
	yamlVersion = regexp.MustCompile(`(\nmetadata:\n(?:  [^\n]*\n)*?  resourceVersion: ")\d+("\n)$`)
	age         = regexp.MustCompile(`(["\s])\d+[smh]\d*s?("?[,\n\]])`)
	// binaryMark ends the initial events of a watch in protobuf.
	binaryMark   = regexp.MustCompile(`(?s)(BOOKMARK).*$`)
	bookmark     = regexp.MustCompile(`\{"type":"BOOKMARK".*\n`)
	allSent      = regexp.MustCompile(`("k8s.io/initial-events-end":"true"\},"resourceVersion":")\d+`)
	continueSeen = regexp.MustCompile(`"continue":\s*"([^"]+)"`)
	tokenVersion = regexp.MustCompile(`"rv":\d+`)
	// tokenStart differs between upstream's watch cache and etcd storage, which answers lists by
	// name with a limit. Both take both.
	tokenStart = regexp.MustCompile(`"start":"/`)
)

// compareAll compares requests, some at the same time, until one differs.
func (p *pair) compareAll(t *testing.T, requests []request, atOnce int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(atOnce)
	for _, r := range requests {
		group.Go(func() error { return p.compare(ctx, r) })
	}
	expect.NoError(t, group.Wait())
}

// compare sends a request to both servers until they answer alike: a replica may lag behind
// changes made through the other, and a watch on a busy machine may end before it has sent all.
func (p *pair) compare(ctx context.Context, r request) error {
	var different error
	err := wait.PollUntilContextTimeout(ctx, interval, poll.Timeout, true, func(ctx context.Context) (bool, error) {
		found := p.difference(ctx, r)
		if ctx.Err() == nil {
			different = found
		}
		return found == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, different)
	}
	return nil
}

// interval is the time between two attempts.
const interval = 20 * time.Millisecond

// difference returns how the answers differ. The resource version of a consistent list may
// differ, because annex writes objects of its own all the time.
func (p *pair) difference(ctx context.Context, r request) error {
	want, err := p.upstream.read(ctx, r)
	if err != nil {
		return fmt.Errorf("%s: upstream: %w", r, err)
	}
	got, err := p.annex.read(ctx, r)
	if err != nil {
		return fmt.Errorf("%s: annex: %w", r, err)
	}
	if got == want {
		return nil
	}
	return fmt.Errorf("%s\nannex:    %s\nupstream: %s", r, cut(got, want), cut(want, got))
}

// normalized replaces what depends on time.
func normalized(body string) string {
	body = listVersion.ReplaceAllString(body, "${1}RV$2")
	body = listFirst.ReplaceAllString(body, "${1}RV$2")
	body = tooLarge.ReplaceAllString(body, "${1}RV")
	body = age.ReplaceAllString(body, "${1}AGE$2")
	body = yamlVersion.ReplaceAllString(body, "${1}RV$2")
	body = tooOld.ReplaceAllString(body, "${1}RV")
	body = bookmark.ReplaceAllStringFunc(body, func(event string) string {
		if !allSent.MatchString(event) {
			return "" // depends on time
		}
		return allSent.ReplaceAllString(event, "${1}RV")
	})
	if strings.HasPrefix(body, "\x00") {
		body = binaryMark.ReplaceAllString(body, "$1")
	}
	return continueSeen.ReplaceAllStringFunc(body, func(found string) string {
		token := continueSeen.FindStringSubmatch(found)[1]
		decoded, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return found
		}
		token = tokenStart.ReplaceAllString(tokenVersion.ReplaceAllString(string(decoded), "RV"), `"start":"`)
		return `"continue":"` + token + `"`
	})
}

// cut returns an answer around its first difference from another.
func cut(a, from answer) string {
	at := 0
	for at < len(a.body) && at < len(from.body) && a.body[at] == from.body[at] {
		at++
	}
	begin, end := max(0, at-200), min(len(a.body), at+300)
	header := a
	header.body = ""
	return fmt.Sprintf("%+v, %d bytes, from %d: %s", header, len(a.body), begin, a.body[begin:end])
}
