// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// slowCluster has objects without finalizers. It takes a second to delete one.
type slowCluster struct {
	mu      sync.Mutex
	objects sets.Set[string]
}

func (s *slowCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	body := `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	if r.Method == http.MethodDelete {
		time.Sleep(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodDelete {
		s.objects.Delete(path.Base(r.URL.Path))
	} else {
		var items []string
		for _, name := range sets.List(s.objects) {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","uid":"1","resourceVersion":"1"}}`, name))
		}
		body = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"2"},"items":[` + strings.Join(items, ",") + `]}`
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// TestDeleteAllIsPaced deletes for two groups at once, which share the rests: after each deletion as long as it took.
func TestDeleteAllIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := &slowCluster{objects: sets.New[string]()}
		for i := range 10 * Workers {
			cluster.objects.Insert(fmt.Sprintf("object-%03d", i))
		}
		login := &rest.Config{Host: "http://main", Transport: cluster}
		c, err := New(Config{Main: login, Annex: login})
		expect.NoError(t, err)
		began := time.Now()
		var groups sync.WaitGroup
		for range 2 {
			groups.Go(func() {
				last := int64(0)
				expect.Succeeds(t, c.DeleteAll(t.Context(), ResourceOf(crds.New("example.com", "widgets", "v1")), func(deleted int64) { last = deleted }))
				if last != 10*Workers {
					t.Errorf("%d objects are deleted", last)
				}
			})
		}
		groups.Wait()
		expect.Equal(t, 19*time.Second, time.Since(began), "ten deletions by each worker of both, with nine rests")
	})
}
