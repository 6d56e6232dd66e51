// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

const widgets = "widgets.example.com"

// tracker is a UsageTracker that a test moves.
type tracker struct {
	mu       sync.Mutex
	handlers []usage.Handler
	objects  int64
}

func (t *tracker) AddHandler(handler usage.Handler) { t.handlers = append(t.handlers, handler) }
func (t *tracker) HasSynced() bool                  { return true }
func (t *tracker) Total() usage.Usage               { return t.Usage(schema.GroupResource{}) }

func (t *tracker) Usage(schema.GroupResource) usage.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return usage.Usage{Objects: t.objects, Bytes: 100 * t.objects}
}

func (t *tracker) set(objects int64) {
	t.mu.Lock()
	t.objects = objects
	t.mu.Unlock()
	for _, handler := range t.handlers {
		handler.UsageChanged(schema.ParseGroupResource(widgets))
	}
}

// noEtcd is an etcd that never answers.
type noEtcd struct{}

func (noEtcd) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return nil, errors.New("refused")
}

func (noEtcd) MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	return nil, errors.New("refused")
}

// newConfig is a Config over clients that keep objects in memory.
func newConfig(usage *tracker) Config {
	annexKube := fake.NewClientset()
	annexHosting := annexfake.NewClientset()
	annexAPIExtensions := apiextensionsfake.NewClientset(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: widgets}})
	return Config{
		AnnexKube:                   annexKube,
		AnnexAPIExtensions:          annexAPIExtensions,
		AnnexHosting:                annexHosting,
		AnnexMetadata:               metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		AnnexInformers:              informers.NewSharedInformerFactory(annexKube, 0),
		AnnexAPIExtensionsInformers: apiextensionsinformers.NewSharedInformerFactory(annexAPIExtensions, 0),
		AnnexHostingInformers:       annexinformers.NewSharedInformerFactory(annexHosting, 0),
		Usage:                       usage,
		AnnexEtcd:                   noEtcd{},
		EtcdEndpoints:               []string{"https://etcd:2379"},
		DefaultStore:                hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}},
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, d := range descriptors() {
		if d.name == "" || seen[d.name] {
			t.Errorf("controller %q has no name of its own", d.name)
		}
		seen[d.name] = true
		if d.workers < 1 {
			t.Errorf("controller %s has %d workers", d.name, d.workers)
		}
	}
}

// TestRun has all controllers made, wired to each other's surroundings and run:
// each must leave a trace, and when the context is done nothing may be left. A
// synctest bubble that still has goroutines when its test returns fails.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		usage := &tracker{}
		config := newConfig(usage)
		controllers, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := controllers.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			controllers.Run(ctx)
		}()
		time.Sleep(5 * time.Second)
		usage.set(3)
		time.Sleep(5 * time.Second)

		hosting := config.AnnexHosting.HostingV1alpha1()
		if hosted, err := hosting.HostedResources().Get(ctx, widgets, metav1.GetOptions{}); err != nil || hosted.Status.Objects != 3 {
			t.Errorf("hosted resource %+v, error %v, want one with 3 objects", hosted, err)
		}
		if store, err := hosting.Stores().Get(ctx, "default", metav1.GetOptions{}); err != nil || len(store.Status.Conditions) == 0 || store.Status.Objects != 3 {
			t.Errorf("store %+v, error %v, want one with a status and 3 objects", store, err)
		}

		cancel()
		<-done
		config.AnnexInformers.Shutdown()
		config.AnnexAPIExtensionsInformers.Shutdown()
	})
}

func TestNewFailsOnInformersThatStopped(t *testing.T) {
	t.Parallel()
	config := newConfig(&tracker{})
	config.AnnexInformers.Core().V1().Namespaces().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	config.AnnexInformers.StartWithContext(ctx)
	cancel()
	config.AnnexInformers.Shutdown()
	if _, err := New(config); err == nil {
		t.Error("controllers were made that would never see anything")
	}
}
