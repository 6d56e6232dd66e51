// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var embedded = hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}}

// withObjects is a Mode with system objects.
type withObjects struct {
	Mode
	objects []SystemObject
}

func (m withObjects) SystemObjects(Config) []SystemObject { return m.objects }

// config is a Config with a namespace as another system object.
func config(annexKube *fake.Clientset, annexHosting *annexfake.Clientset) Config {
	return Config{
		AnnexHosting: annexHosting,
		DefaultStore: embedded,
		Mode: withObjects{objects: []SystemObject{{What: "a namespace", Make: func(ctx context.Context) error {
			_, err := GetOrCreate(ctx, annexKube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "annex-system"}})
			return err
		}}}},
	}
}

func TestBootstrapMakesEverything(t *testing.T) {
	t.Parallel()
	annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
	expect.NoError(t, Bootstrap(t.Context(), config(annexKube, annexHosting)))
	expect.Get(t, annexKube.CoreV1().Namespaces(), "annex-system")
	expect.Equal(t, embedded, expect.Get(t, annexHosting.HostingV1alpha1().Stores(), "default").Spec, "spec of the default store")
}

func TestBootstrapLeavesWhatExistsAlone(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "annex-system", Labels: map[string]string{"mine": "yes"}}})
	annexHosting := annexfake.NewClientset(&hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}, Unschedulable: true},
	})
	expect.NoError(t, Bootstrap(t.Context(), config(annexKube, annexHosting)))
	for _, action := range slices.Concat(annexKube.Actions(), annexHosting.Actions()) {
		if action.GetVerb() != "get" {
			t.Errorf("%s %s although it exists", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

// TestBootstrapCorrectsTheEtcd: flags may name another etcd than at the last start.
func TestBootstrapCorrectsTheEtcd(t *testing.T) {
	t.Parallel()
	external := func(endpoint string) *hostingv1alpha1.EtcdStore {
		return &hostingv1alpha1.EtcdStore{Endpoints: []string{endpoint}, KeyPrefix: "/annex", Defragmentation: hostingv1alpha1.DefragmentationWhenFull}
	}
	for name, tc := range map[string]struct{ before, used hostingv1alpha1.StoreSpec }{
		"embedded to external": {embedded, hostingv1alpha1.StoreSpec{Etcd: external("https://b:2379")}},
		"external to embedded": {hostingv1alpha1.StoreSpec{Etcd: external("https://a:2379")}, embedded},
		"other endpoints":      {hostingv1alpha1.StoreSpec{Etcd: external("https://a:2379")}, hostingv1alpha1.StoreSpec{Etcd: external("https://b:2379")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.before.Unschedulable = true
			annexHosting := annexfake.NewClientset(&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: tc.before})
			config := config(fake.NewClientset(), annexHosting)
			config.DefaultStore = tc.used
			expect.NoError(t, Bootstrap(t.Context(), config))
			tc.used.Unschedulable = true
			expect.Equal(t, tc.used, expect.Get(t, annexHosting.HostingV1alpha1().Stores(), "default").Spec, "spec of the default store")
		})
	}
}

// TestGetOrCreateWhileAnotherCreates creates the object between the read and the write.
func TestGetOrCreateWhileAnotherCreates(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	annexKube.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return false, nil, annexKube.Tracker().Add(wanted)
	})
	_, err := GetOrCreate(t.Context(), annexKube.CoreV1().Namespaces(), wanted)
	expect.NoError(t, err)
}

func TestBootstrapTriesUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
		started := time.Now()
		var attempts atomic.Int32
		failing := func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts.Add(1)
			if time.Since(started) < time.Minute {
				return true, nil, apierrors.NewServiceUnavailable("starting")
			}
			return false, nil, nil
		}
		annexKube.PrependReactor("*", "*", failing)
		annexHosting.PrependReactor("create", "*", failing)
		expect.NoError(t, Bootstrap(t.Context(), config(annexKube, annexHosting)))
		if late := time.Since(started) - time.Minute; late > 300*time.Millisecond {
			t.Errorf("done %s after the server was, want at most 300ms", late)
		}
		// Two objects, each tried about four times a second.
		if got := attempts.Load(); got > 2*60*6 {
			t.Errorf("%d attempts in a minute", got)
		}
		expect.Get(t, annexKube.CoreV1().Namespaces(), "annex-system")
	})
}

func TestBootstrapEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
		annexHosting.PrependReactor("create", "stores", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("denied by policy")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Bootstrap(ctx, config(annexKube, annexHosting))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "store default") || !strings.Contains(err.Error(), "denied by policy") {
			t.Errorf("error %v, want one that names the context's end, the store and why it failed", err)
		}
	})
}
