// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"another user does not wait": {now: nil, user: "admin", starting: true, code: http.StatusOK, asked: 1},
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
			if got := get(handler, test.user, discoveryPath); got.Code != test.code {
				t.Errorf("got %d %s, want %d", got.Code, got.Body, test.code)
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
