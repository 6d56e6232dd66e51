// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// served fakes annex's discovery. versions has the resources of each group version.
type served struct {
	versions map[string][]metav1.APIResource
	err      error
	requests int
}

func (s *served) ServerGroupsWithContext(context.Context) (*metav1.APIGroupList, error) {
	if s.err != nil {
		return nil, s.err
	}
	list := &metav1.APIGroupList{}
	for name := range s.versions {
		version, _ := schema.ParseGroupVersion(name)
		list.Groups = append(list.Groups, metav1.APIGroup{Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{{Version: version.Version}}})
	}
	return list, nil
}

func (s *served) ServerResourcesForGroupVersionWithContext(_ context.Context, version string) (*metav1.APIResourceList, error) {
	s.requests++
	if s.err != nil {
		return nil, s.err
	}
	resources, ok := s.versions[version]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	return &metav1.APIResourceList{APIResources: resources}, nil
}

var (
	all     = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	widgets = metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: all}
)

func TestResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		discovery := &served{versions: map[string][]metav1.APIResource{"v1": {{Name: "namespaces", Kind: "Namespace", Verbs: all}}}}
		r := newResolver(discovery)
		widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		find := func(what string, want error) {
			t.Helper()
			found, err := r.byKind(t.Context(), widget)
			if !errors.Is(err, want) {
				t.Errorf("%s: error %v, want %v", what, err, want)
			}
			if wanted := (target{widget.GroupVersion().WithResource("widgets"), "Widget", true, true}); want == nil && found != wanted {
				t.Errorf("%s: found %+v", what, found)
			}
		}
		find("not served", errUnserved)
		find("asked again at once", errUnserved)
		expect.Equal(t, 1, discovery.requests, "requests")
		time.Sleep(rediscoverPeriod)
		discovery.err = apierrors.NewServiceUnavailable("starting")
		find("unavailable", discovery.err)
		discovery.err = nil
		discovery.versions["example.com/v1"] = []metav1.APIResource{{Name: "widgets/status", Kind: "Widget"}, widgets}
		find("served", nil)
		find("known", nil)
		expect.Equal(t, 3, discovery.requests, "requests")

		// A change of the definition is seen at once.
		delete(discovery.versions, "example.com/v1")
		find("known still", nil)
		r.forget("example.com")
		find("gone", errUnserved)
		r.forget("example.com")
		discovery.versions["example.com/v1"] = []metav1.APIResource{widgets}
		find("back", nil)

		is := func(resource string) func(target) bool { return func(t target) bool { return t.Resource == resource } }
		for _, test := range []struct {
			group, resource string
			want            error
		}{{"example.com", "widgets", nil}, {"", "namespaces", nil}, {"example.com", "gadgets", errUnserved}, {"other.com", "widgets", errUnserved}} {
			if _, err := r.inGroup(t.Context(), test.group, is(test.resource)); !errors.Is(err, test.want) {
				t.Errorf("%s.%s: error %v, want %v", test.resource, test.group, err, test.want)
			}
		}
	})
}

// Reviews cannot be read, so they have no mirrors. A resource that is being deleted is not served.
func TestManageable(t *testing.T) {
	t.Parallel()
	targets := targetsOf(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{widgets, {Name: "reviews", Kind: "Review", Verbs: metav1.Verbs{"create"}},
		{Name: "gadgets", Kind: "Gadget", Verbs: metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}}})
	if len(targets) != 2 || !targets[0].manageable || targets[1].manageable {
		t.Errorf("targets %+v", targets)
	}
}
