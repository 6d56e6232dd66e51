// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apirest "k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	"github.com/annex-dev/annex/pkg/registry/hosting/rest"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestNewRESTStorage(t *testing.T) {
	t.Parallel()
	info, err := rest.StorageProvider{Serialization: typedtest.Serialization}.NewRESTStorage(typedtest.NewStorage(t, v1alpha1.SchemeGroupVersion))
	expect.NoError(t, err, "NewRESTStorage")
	served := info.VersionedResourcesStorageMap["v1alpha1"]
	t.Cleanup(func() {
		for _, storage := range served {
			storage.Destroy()
		}
	})
	for kind, resource := range kinds(scheme.Scheme) {
		if served[resource] == nil {
			t.Errorf("%s is registered but %s are not served", kind, resource)
		}
		if served[resource+"/status"] == nil {
			t.Errorf("%s have no status endpoint", resource)
		}
	}

	for name, shortNames := range map[string][]string{"stores": {"sto"}, "hostedresources": {"hres"}, "migrations": {"mig"}, "injectionprofiles": {"inj"}, "staticsources": {"ssrc"}} {
		if got := served[name].(apirest.ShortNamesProvider).ShortNames(); !slices.Equal(got, shortNames) {
			t.Errorf("short names of %s: %q, want %q", name, got, shortNames)
		}
		if got := served[name].(apirest.CategoriesProvider).Categories(); !slices.Equal(got, []string{"annex"}) {
			t.Errorf("categories of %s: %q, want annex", name, got)
		}
	}
}

// kinds returns the resource name of each kind.
func kinds(scheme *runtime.Scheme) map[string]string {
	found := map[string]string{}
	known := scheme.KnownTypes(v1alpha1.SchemeGroupVersion)
	for kind := range known {
		if _, isObject := known[kind+"List"]; isObject {
			plural, _ := meta.UnsafeGuessKindToResource(v1alpha1.SchemeGroupVersion.WithKind(kind))
			found[kind] = plural.Resource
		}
	}
	return found
}
