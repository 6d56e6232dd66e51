// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
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

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// authority is a CABundleSource that a test changes.
type authority struct {
	bundle   string
	listener func()
}

func (a *authority) CABundle() []byte            { return []byte(a.bundle) }
func (a *authority) AddListener(listener func()) { a.listener = listener }

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rootCAConfigMap, Namespace: "team", UID: "1"}, Data: data}
}

// runNamespaceDefaults runs the controller until the end of the test, and lets it come to rest.
func runNamespaceDefaults(t *testing.T, annexKube *fake.Clientset, ca framework.CABundleSource) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(annexKube, 0)
	core := factory.Core().V1()
	c, err := newNamespaceDefaults(annexKube, core.Namespaces().Informer(), core.ServiceAccounts().Informer(), ca)
	expect.NoError(t, err)
	controllertest.Run(t, c, 2, factory)
	settle()
}

// settle lets controllers come to rest.
func settle() { controllertest.Advance(10 * time.Second) }

// wantDefaults expects a service account in each of these namespaces, and the bundle in "team".
func wantDefaults(t *testing.T, annexKube *fake.Clientset, bundle string, namespaces ...string) {
	t.Helper()
	accounts, err := annexKube.CoreV1().ServiceAccounts(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	want, got := map[string]bool{}, map[string]bool{}
	for _, name := range namespaces {
		want[name+"/default"] = true
	}
	for _, one := range accounts.Items {
		got[one.Namespace+"/"+one.Name] = true
	}
	expect.Equal(t, want, got, "service accounts")
	if bundle == "" {
		return
	}
	found := expect.Get(t, annexKube.CoreV1().ConfigMaps("team"), rootCAConfigMap)
	expect.Equal(t, map[string]string{rootCAKey: bundle}, found.Data, "data of the config map")
	if len(found.BinaryData) > 0 {
		t.Error("the config map has binary data")
	}
}

func TestNamespaceDefaults(t *testing.T) {
	t.Parallel()
	immutable := configMap(map[string]string{rootCAKey: "forged"})
	immutable.Immutable = new(true)
	for name, there := range map[string]*corev1.ConfigMap{
		"nothing":            nil,
		"as it has to be":    configMap(map[string]string{rootCAKey: "first"}),
		"another authority":  configMap(map[string]string{rootCAKey: "forged"}),
		"one key more":       configMap(map[string]string{rootCAKey: "first", "more": "x"}),
		"bytes":              {ObjectMeta: configMap(nil).ObjectMeta, BinaryData: map[string][]byte{"x": {1}}, Data: map[string]string{rootCAKey: "first"}},
		"one that is frozen": immutable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				leaving := namespaceNamed("leaving")
				leaving.DeletionTimestamp = new(metav1.Unix(1, 0))
				objects := []runtime.Object{namespaceNamed("team"), leaving}
				if there != nil {
					objects = append(objects, there)
				}
				annexKube := fake.NewClientset(objects...)
				annexKube.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
					updated := action.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap)
					if updated.Immutable == nil {
						return false, nil, nil
					}
					return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), updated.Name, nil)
				})
				ca := &authority{bundle: "first"}
				runNamespaceDefaults(t, annexKube, ca)
				wantDefaults(t, annexKube, "first", "team")
				ca.bundle = "second"
				ca.listener()
				settle()
				wantDefaults(t, annexKube, "second", "team")
				expect.Delete(t, annexKube.CoreV1().ConfigMaps("team"), rootCAConfigMap)
				expect.Delete(t, annexKube.CoreV1().ServiceAccounts("team"), defaultServiceAccount)
				expect.Create(t, annexKube.CoreV1().Namespaces(), namespaceNamed("new"))
				settle()
				wantDefaults(t, annexKube, "second", "new", "team")
			})
		})
	}
}

func TestNamespaceDefaultsFailures(t *testing.T) {
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
				annexKube := fake.NewClientset(namespaceNamed("a"))
				attempts := 0
				annexKube.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
					attempts++
					return attempts < 3, nil, test.err
				})
				runNamespaceDefaults(t, annexKube, nil)
				if again := attempts > 1; again != test.again {
					t.Errorf("%d attempts, again: want %t", attempts, test.again)
				}
				var want []string
				if test.again {
					want = []string{"a"}
				}
				wantDefaults(t, annexKube, "", want...)
			})
		})
	}
}
