// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestReviewsAreLimited sends more TokenReviews than the limit allows in that time, and
// then one for a token that was valid before.
func TestReviewsAreLimited(t *testing.T) {
	t.Parallel()
	const burst = 20
	var asked atomic.Int64
	main := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		review := &authenticationv1.TokenReview{}
		expect.Succeeds(t, json.NewDecoder(r.Body).Decode(review))
		review.Status.Authenticated = review.Spec.Token == "good"
		w.Header().Set("Content-Type", "application/json")
		expect.Succeeds(t, json.NewEncoder(w).Encode(review))
	}))
	defer main.Close()
	cluster := &Cluster{Config: &restclient.Config{
		Host: main.URL, QPS: -1, ContentConfig: restclient.ContentConfig{ContentType: "application/json"},
	}}
	mainReviews, err := cluster.tokenReviewClient(0.001, burst)
	expect.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func(token string) (bool, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		answer, err := mainReviews.TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Authenticated, err
	}
	if ok, err := ask("good"); !ok {
		t.Fatalf("a good token is refused: %v", err)
	}
	for i := range 5 * burst {
		_, err := ask(fmt.Sprint("bad", i))
		if over := i >= burst-1; over != errors.Is(err, errUnavailable) {
			t.Errorf("bad token %d: %v, want that it was not asked about: %t", i, err, over)
		}
	}
	if asked.Load() != burst {
		t.Errorf("the main cluster was asked %d times, want %d", asked.Load(), burst)
	}
	if ok, err := ask("good"); !ok {
		t.Errorf("a token that was good before is refused beside a flood: %v", err)
	}
}
