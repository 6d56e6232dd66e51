// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// changing is an API server that serves each resource, or no longer does, from a time on. It has a local APIService.
type changing struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	serves bool
	at     map[string]time.Time
	of     schema.GroupVersionResource
}

func (c changing) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	c.of = of
	return c
}

func (c changing) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if time.Now().Before(c.at[c.of.Resource]) == c.serves {
		return nil, apierrors.NewNotFound(c.of.GroupResource(), "")
	}
	return &unstructured.UnstructuredList{}, nil
}

func (c changing) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{}, nil
}

// TestWaitServed waits for all resources together: while the copy is closed, clients wait.
func TestWaitServed(t *testing.T) {
	t.Parallel()
	for served, settle := range map[bool]time.Duration{true: defaultSettle, false: closeSettle} {
		t.Run(fmt.Sprintf("served %t", served), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, last := time.Now(), time.Second
				server := changing{serves: served, at: map[string]time.Time{"a": began, "b": began.Add(last), "c": began}}
				var resources []Resource
				for _, plural := range []string{"a", "b", "c"} {
					resources = append(resources, Resource{Name: plural, Stored: schema.GroupVersionResource{Group: "example.com", Resource: plural}})
				}
				c := &Copy{settle: defaultSettle, objects: server, newProbes: func() (dynamic.Interface, func(), error) {
					return server, func() {}, nil
				}}
				expect.NoError(t, c.waitServed(t.Context(), nil, served))
				expect.Equal(t, began, time.Now(), "after a wait for nothing")
				expect.NoError(t, c.waitServed(t.Context(), resources, served))
				if took := time.Since(began); took < last+settle || took > last+settle+2*probeInterval {
					t.Errorf("took %s, want %s after the last resource has changed", took, settle)
				}
				ctx, cancel := context.WithTimeout(t.Context(), settle)
				defer cancel()
				server.at["b"] = began.Add(time.Hour)
				expect.Error(t, c.waitServed(ctx, resources, served), "main-copy of b", "served")
			})
		})
	}
}

// TestProbesOfTwoGroups makes each probe of one group over another connection, while a probe of another group is under
// way all the time.
func TestProbesOfTwoGroups(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var mu sync.Mutex
	var connections []string
	underWay, done := make(chan struct{}), make(chan struct{})
	_, login := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "slow.example.com") {
			once.Do(func() { close(underWay) })
			<-done
		} else {
			mu.Lock()
			connections = append(connections, r.RemoteAddr)
			mu.Unlock()
		}
		http.NotFound(w, r)
	}))
	login.BearerToken = "token"
	c, err := New(Config{Main: login, Annex: &restclient.Config{}, Settle: 2 * probeInterval})
	expect.NoError(t, err)
	closed := func(group string) error {
		of := Resource{Name: "widgets." + group, Stored: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}}
		return c.waitServed(t.Context(), []Resource{of}, false)
	}
	var slow errgroup.Group
	slow.Go(func() error { return closed("slow.example.com") })
	<-underWay
	expect.NoError(t, closed("example.com"))
	close(done)
	expect.NoError(t, slow.Wait())
	if len(connections) < 2 || sets.New(connections...).Len() < len(connections) {
		t.Errorf("the probes came over the connections %q, want a new one for each", connections)
	}
}
