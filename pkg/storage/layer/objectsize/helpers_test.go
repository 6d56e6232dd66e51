// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const testPrefix = "/annex"

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// newStorage returns a storage of widgets. etcdBytes is the request limit of its etcd.
func newStorage(t *testing.T, config Config, etcdBytes int64) storage.Interface {
	t.Helper()
	annexEtcd := etcdtest.StartClient(t, func(config *embeddedetcd.Config) { config.MaxRequestBytes = etcdBytes })
	config.Resource, config.Store, config.Prefix = widgets, "archive", testPrefix
	limiter := NewLimiter(config)
	codec := unstructured.UnstructuredJSONScheme
	versioner := storage.APIObjectVersioner{}
	store, err := etcd3.New(annexEtcd, nil, codec, newWidget, newWidgets, testPrefix, "/example.com/widgets", widgets,
		limiter.Transformer(identity.NewEncryptCheckTransformer()), etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	expect.NoError(t, err)
	t.Cleanup(store.Close)
	return limiter.Storage(store)
}

func newWidget() runtime.Object  { return &unstructured.Unstructured{} }
func newWidgets() runtime.Object { return &unstructured.UnstructuredList{} }

func widgetKey(name string) string { return "/example.com/widgets/default/" + name }

func widget(name, data string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"data":     data,
	}}
}
