// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// run runs the controller over a client that keeps the given objects, until the end of
// the test, and lets it come to rest.
func run(t *testing.T, annexKube *fake.Clientset) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(annexKube, 0)
	c, err := New(Config{
		AnnexServiceAccounts: annexKube.CoreV1(),
		Namespaces:           factory.Core().V1().Namespaces().Informer(),
		ServiceAccounts:      factory.Core().V1().ServiceAccounts().Informer(),
	})
	expect.NoError(t, err)
	controllertest.Run(t, c, 2, factory)
	settle()
}

// settle lets the controller come to rest.
func settle() { controllertest.Advance(10 * time.Second) }

// accounts are all service accounts, as namespace/name.
func accounts(t *testing.T, annexKube *fake.Clientset) []string {
	t.Helper()
	list, err := annexKube.CoreV1().ServiceAccounts("").List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	slices.Sort(all)
	return all
}

func TestEveryNamespaceHasOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ending := namespace("ending")
		ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		annexKube := fake.NewClientset(namespace("a"), namespace("b"), ending,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "default", Labels: map[string]string{"mine": "yes"}}})
		run(t, annexKube)
		expect.Equal(t, []string{"a/default", "b/default"}, accounts(t, annexKube), "after the start")
		kept, err := annexKube.CoreV1().ServiceAccounts("b").Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil || kept.Labels["mine"] != "yes" {
			t.Errorf("the one that was there: %v, error %v", kept, err)
		}

		expect.Create(t, annexKube.CoreV1().Namespaces(), namespace("c"))
		expect.Delete(t, annexKube.CoreV1().ServiceAccounts("a"), "default")
		settle()
		expect.Equal(t, []string{"a/default", "b/default", "c/default"}, accounts(t, annexKube), "after a new namespace and a deleted service account")
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	terminating := apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "default", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		err   error
		again bool
	}{
		"created concurrently":        {apierrors.NewAlreadyExists(corev1.Resource("serviceaccounts"), "default"), false},
		"the namespace is gone":       {apierrors.NewNotFound(corev1.Resource("namespaces"), "a"), false},
		"the namespace is ending":     {terminating, false},
		"the server is not available": {apierrors.NewServiceUnavailable("starting"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				annexKube := fake.NewClientset(namespace("a"))
				attempts := 0
				annexKube.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
					attempts++
					return attempts < 3, nil, test.err
				})
				run(t, annexKube)
				if again := attempts > 1; again != test.again {
					t.Errorf("%d attempts, again: want %t", attempts, test.again)
				}
				if made := len(accounts(t, annexKube)) == 1; made != test.again {
					t.Errorf("made: %t", made)
				}
			})
		})
	}
}
