// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// discoverable serves the resources of example.com/v1 that there are so far.
type discoverable struct {
	resources atomic.Pointer[[]string]
	asked     atomic.Int64
}

func newDiscoverable(resources ...string) *discoverable {
	d := &discoverable{}
	d.resources.Store(&resources)
	return d
}

func (d *discoverable) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	d.asked.Add(1)
	version := apidiscoveryv2.APIVersionDiscovery{Version: "v1"}
	for _, resource := range *d.resources.Load() {
		version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: resource})
	}
	group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "example.com"}, Versions: []apidiscoveryv2.APIVersionDiscovery{version}}
	// The recorder takes all.
	_ = json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group}})
}

func TestAggregatorDiscoversAllThatIsDefined(t *testing.T) {
	t.Parallel()
	old, fresh := newDefinition("widgets", "example.com", time.Hour), newDefinition("gadgets", "example.com", 0)
	tests := map[string]struct {
		now, later []string
		user       string
		starting   bool
		code       int
		asked      int64 // how often annex was queried at least
	}{
		"all is there":               {now: []string{"widgets", "gadgets"}, user: discoveryUser, code: http.StatusOK, asked: 2},
		"one comes a moment later":   {now: []string{"widgets"}, later: []string{"widgets", "gadgets"}, user: discoveryUser, code: http.StatusOK, asked: 3},
		"one never comes":            {now: []string{"widgets"}, user: discoveryUser, code: http.StatusOK, asked: 3},
		"the old one is to come":     {now: []string{"gadgets"}, user: discoveryUser, starting: true, code: http.StatusServiceUnavailable, asked: 2},
		"another user does not wait": {now: []string{"widgets"}, user: "admin", starting: true, code: http.StatusOK, asked: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := newDiscoverable(test.now...)
			handler := newHandler(served, &knownMain{}, old, fresh)
			if test.starting {
				handler.started = time.Now()
			}
			if test.later != nil {
				appears := time.AfterFunc(3*settlingInterval, func() { served.resources.Store(&test.later) })
				defer appears.Stop()
			}
			got := get(handler, test.user, discoveryPath)
			if got.Code != test.code {
				t.Errorf("got %d %s, want %d", got.Code, got.Body, test.code)
			}
			marked := strings.Count(got.Body.String(), hostingv1alpha1.ServedCategory)
			if resources := strings.Count(got.Body.String(), `"resource":`); test.user == discoveryUser && marked != resources || test.user != discoveryUser && marked > 0 {
				t.Errorf("%d of %d resources have the category: %s", marked, resources, got.Body)
			}
			if asked := served.asked.Load(); asked < test.asked {
				t.Errorf("annex was asked %d times, want at least %d", asked, test.asked)
			}
		})
	}

	// Long after all was defined it costs nothing.
	served := newDiscoverable()
	if got := get(newHandler(served, &knownMain{}, old), discoveryUser, discoveryPath); got.Code != http.StatusOK || served.asked.Load() != 1 {
		t.Errorf("nothing is new: got %d, and annex was asked %d times, want once", got.Code, served.asked.Load())
	}
	unknown := newHandler(served, &knownMain{})
	unknown.synced = func() bool { return false }
	if got := get(unknown, discoveryUser, discoveryPath); got.Code != http.StatusServiceUnavailable {
		t.Errorf("definitions are not known: got %d, want 503", got.Code)
	}
}

// TestAggregatorFetchesTheWholeDocumentAgain runs kube-apiserver's discovery manager, whose first request gets a
// response without its body, as if annex had been killed in between.
func TestAggregatorFetchesTheWholeDocumentAgain(t *testing.T) {
	t.Parallel()
	served, discovered := aggregated.NewResourceManager("apis"), aggregated.NewResourceManager("apis")
	served.AddGroupVersion("example.com", apidiscoveryv2.APIVersionDiscovery{
		Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: "widgets"}},
	})
	filter := newHandler(served, &knownMain{})
	var killed atomic.Bool
	annex := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !killed.Swap(true) {
			w = withoutBody{w}
		}
		filter.ServeHTTP(w, r)
	})
	manager := aggregatorapiserver.NewDiscoveryManager(discovered)
	go manager.Run(t.Context().Done(), nil)
	published := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"},
		Spec:       apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1", Service: &apiregistrationv1.ServiceReference{Name: "annex"}},
	}

	for _, want := range []int{0, 1} {
		manager.AddAPIService(published, annex)
		poll.Until(t, "the discovery of kube-apiserver", func() string {
			answer := get(discovered, "admin", discoveryPath, "Accept", discovery.AcceptV2)
			var list apidiscoveryv2.APIGroupDiscoveryList
			expect.NoError(t, json.Unmarshal(answer.Body.Bytes(), &list), "%d %s", answer.Code, answer.Body)
			if len(list.Items) == 0 || len(list.Items[0].Versions[0].Resources) != want || strings.Count(answer.Body.String(), hostingv1alpha1.ServedCategory) != want {
				return answer.Body.String()
			}
			return ""
		})
	}
}

// withoutBody drops the body of a response.
type withoutBody struct{ http.ResponseWriter }

func (withoutBody) Write(content []byte) (int, error) { return len(content), nil }
