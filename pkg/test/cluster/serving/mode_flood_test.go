// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var reviewCount = regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="tokenreviews".*\} (\S+)$`)

// tokenReviews counts the TokenReviews in the main cluster.
func tokenReviews(t *testing.T) float64 {
	t.Helper()
	text, err := kube(t, mainCluster.Config).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	var sum float64
	for _, found := range reviewCount.FindAllSubmatch(text, -1) {
		count, err := strconv.ParseFloat(string(found[1]), 64)
		expect.NoError(t, err)
		sum += count
	}
	return sum
}

// TestTokenFlood sends different invalid tokens. annex limits the TokenReviews, and a known user
// is not refused.
func TestTokenFlood(t *testing.T) {
	// Without a cache the token of the user is reviewed with every request.
	annex := annextest.Start(t, mainCluster, "--authentication-token-webhook-cache-ttl=0s")
	user := annex.ConfigAs(serviceAccount(t, mainCluster, "flooded"))
	allow(t, mainCluster, "flooded", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "flooded"})
	poll.UntilDone(t, "the user is accepted", func() (bool, string) {
		got, body := get(t, user, stores)
		return got == http.StatusOK, body
	})

	const floodClients, tokens = 300, 2000
	httpClient, err := restclient.HTTPClientFor(annex.ConfigAs(restclient.AnonymousClientConfig(annex.AnnexConfig)))
	expect.NoError(t, err)
	before, began := tokenReviews(t), time.Now()
	next := make(chan int)
	var flood sync.WaitGroup
	var unanswered atomic.Int32
	for range floodClients {
		flood.Go(func() {
			for i := range next {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, annex.AnnexConfig.Host+stores, nil)
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Authorization", fmt.Sprintf("Bearer bad-%d", i))
				answer, err := httpClient.Do(request)
				if errors.Is(err, io.ErrUnexpectedEOF) {
					// A busy server closes a connection whose first frame it has not read after two seconds:
					// firstSettingsTimeout of x/net/http2.
					unanswered.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				_ = answer.Body.Close()
				if code := answer.StatusCode; code != http.StatusUnauthorized && code != http.StatusServiceUnavailable {
					t.Errorf("an invalid token: %s, want 401, or 503 without a TokenReview", answer.Status)
				}
			}
		})
	}
	var slowest time.Duration
	userRequests := 0
	for i := range tokens {
		next <- i
		if i%500 == 499 {
			started := time.Now()
			if got, body := get(t, user, stores); got != http.StatusOK {
				t.Errorf("a user during the flood: %d, want 200: %s", got, body)
			}
			slowest = max(slowest, time.Since(started))
			userRequests++
		}
	}
	close(next)
	flood.Wait()
	took, reviews := time.Since(began), tokenReviews(t)-before
	t.Logf("%d invalid tokens in %s, %d without an answer: %.0f TokenReviews; a user waited at most %s",
		tokens, took.Round(time.Millisecond), unanswered.Load(), reviews, slowest.Round(time.Millisecond))
	// Upstream's limit is 200 per second with a burst of 400. A twentieth more is allowed:
	// concurrent callers turn back the clock of golang.org/x/time/rate by some microseconds
	// each.
	if limit := 1.05*(400+200*took.Seconds()) + float64(userRequests); reviews > limit {
		t.Errorf("%.0f TokenReviews in %s, want at most %.0f", reviews, took, limit)
	}
}
