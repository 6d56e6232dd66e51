// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

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

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// source is a bundle that a test changes.
type source struct {
	bundle   string
	listener func()
}

func (s *source) CABundle() []byte            { return []byte(s.bundle) }
func (s *source) AddListener(listener func()) { s.listener = listener }

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName, Namespace: "team", UID: "1"}, Data: data}
}

// run runs the controller until the end of the test, and lets it come to rest.
func run(t *testing.T, annexKube *fake.Clientset, ca *source) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(annexKube, 0)
	c, err := New(Config{Annex: annexKube, Namespaces: factory.Core().V1().Namespaces().Informer(), CA: ca})
	expect.NoError(t, err)
	controllertest.Run(t, c, 2, factory)
	settle()
}

// settle lets the controller come to rest.
func settle() { controllertest.Advance(10 * time.Second) }

func TestEveryNamespaceHasTheAuthority(t *testing.T) {
	t.Parallel()
	leaving := namespace("leaving")
	leaving.DeletionTimestamp = new(metav1.Unix(1, 0))
	immutable := configMap(map[string]string{caKey: "forged"})
	immutable.Immutable = new(true)
	for name, there := range map[string]*corev1.ConfigMap{
		"nothing":            nil,
		"as it has to be":    configMap(map[string]string{caKey: "first"}),
		"another authority":  configMap(map[string]string{caKey: "forged"}),
		"one key more":       configMap(map[string]string{caKey: "first", "more": "x"}),
		"bytes":              {ObjectMeta: configMap(nil).ObjectMeta, BinaryData: map[string][]byte{"x": {1}}, Data: map[string]string{caKey: "first"}},
		"one that is frozen": immutable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				objects := []runtime.Object{namespace("team"), leaving}
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
				ca := &source{bundle: "first"}
				run(t, annexKube, ca)
				wantBundle(t, annexKube, "first")
				ca.bundle = "second"
				ca.listener()
				settle()
				wantBundle(t, annexKube, "second")
				expect.Delete(t, annexKube.CoreV1().ConfigMaps("team"), configMapName)
				settle()
				wantBundle(t, annexKube, "second")
			})
		})
	}
}

// wantBundle sees that namespaces that stay have the bundle, and others nothing.
func wantBundle(t *testing.T, annexKube *fake.Clientset, bundle string) {
	t.Helper()
	found, err := annexKube.CoreV1().ConfigMaps(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	got := map[string]map[string]string{}
	for _, one := range found.Items {
		got[one.Namespace+"/"+one.Name] = one.Data
		if len(one.BinaryData) > 0 {
			t.Errorf("%s has binary data", one.Namespace)
		}
	}
	expect.Equal(t, map[string]map[string]string{"team/" + configMapName: {caKey: bundle}}, got, "config maps")
}
