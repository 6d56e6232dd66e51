// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package mode

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var reviewCount = regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="tokenreviews".*\} (\S+)$`)

// tokenReviews counts those that the main cluster was asked.
func tokenReviews(t *testing.T, cluster *maincluster.Cluster) float64 {
	t.Helper()
	text, err := kube(t, cluster.Config).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	var sum float64
	for _, found := range reviewCount.FindAllSubmatch(text, -1) {
		count, err := strconv.ParseFloat(string(found[1]), 64)
		expect.NoError(t, err)
		sum += count
	}
	return sum
}

// TestTokenFlood sends bad tokens, each different. The main cluster is asked about no
// more than a limited number, and a user who was logged in before is not refused.
func TestTokenFlood(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	// A token is asked about again with each request, as it is once in a while.
	annex := annextest.Start(t, cluster, "--authentication-token-webhook-cache-ttl=0s")
	user := direct(annex, serviceAccount(t, cluster, "robot"))
	allow(t, cluster, "stores-reader", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "robot"})
	poll.UntilDone(t, "the user is let in", func() (bool, string) {
		got, body := get(t, user, stores)
		return got == http.StatusOK, body
	})

	const strangers, tokens = 300, 2000
	stranger, err := restclient.HTTPClientFor(direct(annex, restclient.AnonymousClientConfig(annex.AnnexConfig)))
	expect.NoError(t, err)
	before, began := tokenReviews(t, cluster), time.Now()
	next := make(chan int)
	var flood sync.WaitGroup
	for range strangers {
		flood.Go(func() {
			for i := range next {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, annex.AnnexConfig.Host+stores, nil)
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Authorization", fmt.Sprintf("Bearer bad-%d", i))
				answer, err := stranger.Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				_ = answer.Body.Close()
				if code := answer.StatusCode; code != http.StatusUnauthorized && code != http.StatusServiceUnavailable {
					t.Errorf("a bad token: %s, want 401, or 503 where nobody was asked", answer.Status)
				}
			}
		})
	}
	var slowest time.Duration
	asked := 0
	for i := range tokens {
		next <- i
		if i%500 == 499 {
			started := time.Now()
			if got, body := get(t, user, stores); got != http.StatusOK {
				t.Errorf("a user beside the flood: %d, want 200: %s", got, body)
			}
			slowest = max(slowest, time.Since(started))
			asked++
		}
	}
	close(next)
	flood.Wait()
	took, reviews := time.Since(began), tokenReviews(t, cluster)-before
	t.Logf("%d bad tokens in %s: %.0f TokenReviews; a user waited %s at most", tokens, took.Round(time.Millisecond), reviews, slowest.Round(time.Millisecond))
	// Upstream's limit: 200 a second, and 400 at once.
	if limit := 400 + 200*took.Seconds() + float64(asked); reviews > limit {
		t.Errorf("the main cluster was asked %.0f times in %s, want at most %.0f", reviews, took, limit)
	}
}
