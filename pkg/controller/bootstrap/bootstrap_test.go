// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

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

// config is a Config over clients that keep the given objects.
func config(annexKube *fake.Clientset, annexHosting *annexfake.Clientset) Config {
	return Config{
		AnnexNamespaces: annexKube.CoreV1().Namespaces(),
		AnnexStores:     annexHosting.HostingV1alpha1().Stores(),
		DefaultStore:    embedded,
	}
}

func namespaceNames(t *testing.T, annexKube *fake.Clientset) []string {
	t.Helper()
	list, err := annexKube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

func TestRunMakesEverything(t *testing.T) {
	t.Parallel()
	annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
	expect.NoError(t, Run(t.Context(), config(annexKube, annexHosting)))
	expect.Equal(t, []string{"annex-system", "default", "kube-public", "kube-system"}, namespaceNames(t, annexKube), "namespaces")
	store := expect.Get(t, annexHosting.HostingV1alpha1().Stores(), "default")
	expect.Equal(t, embedded, store.Spec, "spec of the default store")
}

func TestRunMakesOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := config(fake.NewClientset(), annexfake.NewClientset())
		attempts := 0
		objects.Others = []Object{{What: "the weather", Make: func(context.Context) error {
			if attempts++; attempts < 3 {
				return errors.New("not yet")
			}
			return nil
		}}}
		expect.NoError(t, Run(t.Context(), objects))
		if attempts != 3 {
			t.Errorf("%d attempts, want as many as it takes: 3", attempts)
		}
	})
}

func TestRunWithoutNamespaces(t *testing.T) {
	t.Parallel()
	annexHosting := annexfake.NewClientset()
	expect.NoError(t, Run(t.Context(), Config{AnnexStores: annexHosting.HostingV1alpha1().Stores(), DefaultStore: embedded}))
	if _, err := annexHosting.HostingV1alpha1().Stores().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestRunLeavesWhatExistsAlone(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset()
	for _, name := range hostingv1alpha1.SystemNamespaces() {
		expect.NoError(t, annexKube.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mine": "yes"}}}))
	}
	annexHosting := annexfake.NewClientset(&hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}, Unschedulable: true},
	})
	expect.NoError(t, Run(t.Context(), config(annexKube, annexHosting)))
	for _, action := range slices.Concat(annexKube.Actions(), annexHosting.Actions()) {
		if action.GetVerb() != "get" {
			t.Errorf("%s %s although it exists", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

// TestRunCorrectsTheEtcd: flags may name another etcd than at the last start.
func TestRunCorrectsTheEtcd(t *testing.T) {
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
			expect.NoError(t, Run(t.Context(), Config{AnnexStores: annexHosting.HostingV1alpha1().Stores(), DefaultStore: tc.used}))
			tc.used.Unschedulable = true
			expect.Equal(t, tc.used, expect.Get(t, annexHosting.HostingV1alpha1().Stores(), "default").Spec, "spec of the default store")
		})
	}
}

func TestRunToleratesAnotherThatIsFaster(t *testing.T) {
	t.Parallel()
	annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
	annexKube.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("namespaces"), "default")
	})
	expect.NoError(t, Run(t.Context(), config(annexKube, annexHosting)))
}

func TestRunTriesUntilItSucceeds(t *testing.T) {
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
		expect.NoError(t, Run(t.Context(), config(annexKube, annexHosting)))
		if late := time.Since(started) - time.Minute; late > 300*time.Millisecond {
			t.Errorf("done %s after the server was, want at most 300ms", late)
		}
		// Five objects, each tried about four times a second.
		if got := attempts.Load(); got > 5*60*6 {
			t.Errorf("%d attempts in a minute", got)
		}
		if got := len(namespaceNames(t, annexKube)); got != 4 {
			t.Errorf("%d namespaces, want 4", got)
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
		annexHosting.PrependReactor("create", "stores", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("denied by policy")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Run(ctx, config(annexKube, annexHosting))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "store default") || !strings.Contains(err.Error(), "denied by policy") {
			t.Errorf("error %v, want one that names the context's end, the store and why it failed", err)
		}
	})
}
