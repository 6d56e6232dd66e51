// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apirest "k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/install"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/hosting/rest"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
)

func TestNewRESTStorage(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	provider := rest.StorageProvider{Serialization: typed.Serialization{Scheme: scheme, ParameterCodec: runtime.NewParameterCodec(scheme), Codecs: codecs}}
	info, err := provider.NewRESTStorage(typedtest.NewStorage(t, codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)))
	if err != nil {
		t.Fatalf("NewRESTStorage: %v", err)
	}
	served := info.VersionedResourcesStorageMap["v1alpha1"]
	t.Cleanup(func() {
		for _, storage := range served {
			storage.Destroy()
		}
	})
	for kind, resource := range kinds(scheme) {
		if served[resource] == nil {
			t.Errorf("%s is registered but %s are not served", kind, resource)
		}
		if served[resource+"/status"] == nil {
			t.Errorf("%s have no status endpoint", resource)
		}
	}

	for name, shortNames := range map[string][]string{"stores": {"sto"}, "hostedresources": {"hres"}} {
		if got := served[name].(apirest.ShortNamesProvider).ShortNames(); !slices.Equal(got, shortNames) {
			t.Errorf("short names of %s: %q, want %q", name, got, shortNames)
		}
		if got := served[name].(apirest.CategoriesProvider).Categories(); !slices.Equal(got, []string{"annex"}) {
			t.Errorf("categories of %s: %q, want annex", name, got)
		}
	}

	var mediaTypes []string
	for _, offered := range info.NegotiatedSerializer.SupportedMediaTypes() {
		mediaTypes = append(mediaTypes, offered.MediaType)
	}
	if !slices.Contains(mediaTypes, runtime.ContentTypeJSON) || slices.Contains(mediaTypes, runtime.ContentTypeProtobuf) {
		t.Errorf("offered media types %q, want JSON and no Protocol Buffers", mediaTypes)
	}
}

// kinds returns the resource name of each kind.
func kinds(scheme *runtime.Scheme) map[string]string {
	found := map[string]string{}
	known := scheme.KnownTypes(hosting.SchemeGroupVersion)
	for kind := range known {
		if _, isObject := known[kind+"List"]; isObject {
			plural, _ := meta.UnsafeGuessKindToResource(hosting.SchemeGroupVersion.WithKind(kind))
			found[kind] = plural.Resource
		}
	}
	return found
}
