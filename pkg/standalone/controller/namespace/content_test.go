// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// apiServer answers the requests of a metadata client out of memory, over HTTP:
// lists in pages, and deletes of collections, which finalizers and grace periods outlive.
type apiServer struct {
	mu       sync.Mutex
	objects  map[string][]*metav1.PartialObjectMetadata // by resource
	failures map[string]*apierrors.StatusError          // by "VERB resource"
	requests []string
}

// ServeHTTP serves /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := strings.TrimPrefix(req.URL.Path, "/apis/example.com/v1/namespaces/team/")
	verb := map[string]string{http.MethodGet: "list", http.MethodDelete: "deletecollection"}[req.Method]
	s.requests = append(s.requests, verb+" "+resource)
	if failure := s.failures[verb+" "+resource]; failure != nil {
		respond(w, int(failure.ErrStatus.Code), &failure.ErrStatus)
		return
	}
	switch verb {
	case "list":
		respond(w, http.StatusOK, s.page(resource, req))
	default:
		var options metav1.DeleteOptions
		if err := json.NewDecoder(req.Body).Decode(&options); err != nil || options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
			respond(w, http.StatusBadRequest, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Message: fmt.Sprintf("options %+v: %v", options, err)})
			return
		}
		s.objects[resource] = slices.DeleteFunc(s.objects[resource], func(object *metav1.PartialObjectMetadata) bool {
			now := metav1.NewTime(epoch)
			object.DeletionTimestamp = &now
			return len(object.Finalizers) == 0
		})
		respond(w, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess})
	}
}

// page returns the requested part of a list.
func (s *apiServer) page(resource string, req *http.Request) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	from, _ := strconv.Atoi(req.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	all := s.objects[resource]
	to := min(from+max(limit, 1), len(all))
	if to < len(all) {
		list.Continue = strconv.Itoa(to)
	}
	for _, object := range all[from:to] {
		list.Items = append(list.Items, *object)
	}
	return list
}

func respond(w http.ResponseWriter, code int, body any) {
	if status, ok := body.(*metav1.Status); ok {
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// deleter starts the server and returns what deletes contents through it.
func (s *apiServer) deleter(t *testing.T) *contentDeleter {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	annexMetadata, err := metadata.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	expect.NoError(t, err)
	return &contentDeleter{annexMetadata: annexMetadata, now: func() time.Time { return epoch }}
}

// objects makes count objects that are alike.
func objects(count int, change func(*metav1.PartialObjectMetadata)) []*metav1.PartialObjectMetadata {
	made := make([]*metav1.PartialObjectMetadata, 0, count)
	for i := range count {
		object := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("object-%d", i), UID: types.UID(strconv.Itoa(i))},
		}
		if change != nil {
			change(object)
		}
		made = append(made, object)
	}
	return made
}

// served is a resource of the test's group.
func served(name string) resource {
	return resource{gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: name}}
}

func TestDeleteAll(t *testing.T) {
	t.Parallel()
	group := func(name string) schema.GroupResource {
		return schema.GroupResource{Group: "example.com", Resource: name}
	}
	held := func(object *metav1.PartialObjectMetadata) { object.Finalizers = []string{"example.com/hold"} }
	going := func(grace time.Duration) func(*metav1.PartialObjectMetadata) {
		return func(object *metav1.PartialObjectMetadata) {
			at := metav1.NewTime(epoch.Add(grace))
			object.DeletionTimestamp = &at
			object.Finalizers = []string{"example.com/slow"}
		}
	}
	unavailable := apierrors.NewServiceUnavailable("not yet")
	notFound := apierrors.NewNotFound(group("widgets"), "")
	notAllowed := apierrors.NewMethodNotSupported(group("widgets"), "deletecollection")

	for name, tc := range map[string]struct {
		resources    []resource
		objects      map[string][]*metav1.PartialObjectMetadata
		failures     map[string]*apierrors.StatusError
		want         leftover
		wantErrors   []string
		wantRequests []string
	}{
		"one request tells that there is nothing": {
			resources:    []resource{served("widgets")},
			wantRequests: []string{"list widgets"},
		},
		"collection": {
			resources:    []resource{served("widgets")},
			objects:      map[string][]*metav1.PartialObjectMetadata{"widgets": objects(3, nil)},
			wantRequests: []string{"list widgets", "deletecollection widgets", "list widgets"},
		},
		"more than a page": {
			resources:    []resource{served("widgets")},
			objects:      map[string][]*metav1.PartialObjectMetadata{"widgets": objects(1201, held)},
			want:         leftover{objects: map[schema.GroupResource]int{group("widgets"): 1201}, finalizers: map[string]int{"example.com/hold": 1201}},
			wantRequests: []string{"list widgets", "list widgets", "list widgets", "deletecollection widgets", "list widgets", "list widgets", "list widgets"},
		},
		"held by finalizers": {
			resources: []resource{served("gadgets"), served("widgets")},
			objects: map[string][]*metav1.PartialObjectMetadata{
				"gadgets": objects(1, held),
				"widgets": slices.Concat(objects(2, nil), objects(2, held)),
			},
			want: leftover{
				objects:    map[schema.GroupResource]int{group("gadgets"): 1, group("widgets"): 2},
				finalizers: map[string]int{"example.com/hold": 3},
			},
			wantRequests: []string{"list gadgets", "deletecollection gadgets", "list gadgets", "list widgets", "deletecollection widgets", "list widgets"},
		},
		"what is going already is not deleted again": {
			resources: []resource{served("widgets")},
			objects:   map[string][]*metav1.PartialObjectMetadata{"widgets": objects(2, going(20*time.Second))},
			want: leftover{
				objects:    map[schema.GroupResource]int{group("widgets"): 2},
				finalizers: map[string]int{"example.com/slow": 2},
				grace:      20 * time.Second,
			},
			wantRequests: []string{"list widgets"},
		},
		"failures stay with their resource": {
			resources: []resource{served("gadgets"), served("gizmos"), served("widgets")},
			objects:   map[string][]*metav1.PartialObjectMetadata{"gizmos": objects(1, nil), "widgets": objects(1, nil)},
			failures:  map[string]*apierrors.StatusError{"list gadgets": unavailable, "deletecollection gizmos": unavailable},
			want:      leftover{objects: map[schema.GroupResource]int{group("gizmos"): 1}},
			wantErrors: []string{
				"delete gadgets.example.com: list objects: not yet",
				"delete gizmos.example.com: delete the collection: not yet",
			},
			wantRequests: []string{"list gadgets", "list gizmos", "deletecollection gizmos", "list widgets", "deletecollection widgets", "list widgets"},
		},
		"not found is not empty": {
			resources:    []resource{served("widgets")},
			failures:     map[string]*apierrors.StatusError{"list widgets": notFound},
			wantErrors:   []string{"delete widgets.example.com: list objects: "},
			wantRequests: []string{"list widgets"},
		},
		"not allowed is not deleted": {
			resources:    []resource{served("widgets")},
			objects:      map[string][]*metav1.PartialObjectMetadata{"widgets": objects(1, nil)},
			failures:     map[string]*apierrors.StatusError{"deletecollection widgets": notAllowed},
			want:         leftover{objects: map[schema.GroupResource]int{group("widgets"): 1}},
			wantErrors:   []string{"delete widgets.example.com: delete the collection: "},
			wantRequests: []string{"list widgets", "deletecollection widgets"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &apiServer{objects: tc.objects, failures: tc.failures}
			if server.objects == nil {
				server.objects = map[string][]*metav1.PartialObjectMetadata{}
			}
			left, errs := server.deleter(t).deleteAll(t.Context(), "team", tc.resources)

			if diff := cmp.Diff(tc.want, left, cmp.AllowUnexported(leftover{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if len(errs) != len(tc.wantErrors) {
				t.Fatalf("errors %v, want %d", errs, len(tc.wantErrors))
			}
			for i, err := range errs {
				if !strings.HasPrefix(err.Error(), tc.wantErrors[i]) {
					t.Errorf("error %q, want one that begins with %q", err, tc.wantErrors[i])
				}
			}
			expect.Equal(t, tc.wantRequests, server.requests, "requests")
		})
	}
}

// contents are objects that are in storage and not served.
type contents struct {
	objects []*metav1.PartialObjectMetadata
	deleted int
}

func (c *contents) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	for _, object := range c.objects {
		list.Items = append(list.Items, *object)
	}
	return list, nil
}

func (c *contents) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	c.deleted++
	now := metav1.NewTime(epoch)
	c.objects = slices.DeleteFunc(c.objects, func(object *metav1.PartialObjectMetadata) bool {
		object.DeletionTimestamp = &now
		return len(object.Finalizers) == 0
	})
	return nil
}

func TestDeleteAllOfUnserved(t *testing.T) {
	t.Parallel()
	crd := widgets(nil)
	item := resource{gvr: schema.GroupVersionResource{Group: "example.com", Resource: "widgets"}, unserved: crd}
	stored := &contents{objects: objects(3, nil)}
	stored.objects[1].Finalizers = []string{"example.com/hold"}
	var failure error
	d := &contentDeleter{now: func() time.Time { return epoch }, storedObjects: func(of *definition, namespace string) (Contents, error) {
		if of != crd || namespace != "team" {
			t.Errorf("asked for %s in %s", of.Name, namespace)
		}
		return stored, failure
	}}
	left, errs := d.deleteAll(t.Context(), "team", []resource{item})
	if len(errs) > 0 || left.objects[item.gvr.GroupResource()] != 1 || left.finalizers["example.com/hold"] != 1 {
		t.Errorf("left is %+v, errors %v; want one object with its finalizer", left, errs)
	}
	stored.objects = nil
	if left, errs = d.deleteAll(t.Context(), "team", []resource{item}); len(errs) > 0 || !left.isEmpty() || stored.deleted != 1 {
		t.Errorf("left is %+v, errors %v after %d deletions; want nothing to do", left, errs, stored.deleted)
	}
	failure = errors.New("no storage")
	if _, errs = d.deleteAll(t.Context(), "team", []resource{item}); len(errs) != 1 {
		t.Errorf("errors %v, want that of the storage", errs)
	}
}

// widgets is the definition of a namespaced resource that is served.
func widgets(change func(*definition)) *definition {
	crd := crds.Established(crds.New("example.com", "widgets", "v1", "v1beta1"))
	slices.Reverse(crd.Spec.Versions)
	if change != nil {
		change(crd)
	}
	return crd
}

func TestResourcesToDelete(t *testing.T) {
	t.Parallel()
	of := func(group, version, name string) resource {
		return resource{gvr: schema.GroupVersionResource{Group: group, Version: version, Resource: name}}
	}
	unserved := widgets(func(crd *definition) { crd.Spec.Versions = crd.Spec.Versions[:0] })
	entry := func(name string, namespaced bool, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, Namespaced: namespaced, Verbs: verbs}
	}

	for name, tc := range map[string]struct {
		lists       []*metav1.APIResourceList
		definitions []*definition
		want        []resource
		wantErrors  int
	}{
		"nothing": {},
		"sorted, whatever the order of discovery": {
			lists: []*metav1.APIResourceList{apiResources("example.com/v1", "b", "a"), apiResources("v1", "secrets", "configmaps")},
			want: []resource{of("", "v1", "configmaps"), of("", "v1", "secrets"),
				of("example.com", "v1", "a"), of("example.com", "v1", "b")},
		},
		"what cannot be deleted, or is no namespaced resource": {
			lists: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
				entry("bindings", true, "create"),
				entry("nodes", false, "list", "delete", "deletecollection"),
				entry("things/status", true, "list", "delete"),
			}}},
		},
		"a group version that cannot be parsed spoils nothing else": {
			lists:      []*metav1.APIResourceList{apiResources("a/b/c", "x"), apiResources("v1", "secrets")},
			want:       []resource{of("", "v1", "secrets")},
			wantErrors: 1,
		},
		"a custom resource that discovery does not list yet": {
			lists:       []*metav1.APIResourceList{apiResources("v1", "secrets")},
			definitions: []*definition{widgets(nil)},
			want:        []resource{of("", "v1", "secrets"), of("example.com", "v1", "widgets")},
		},
		"a custom resource that discovery lists is taken as listed": {
			lists:       []*metav1.APIResourceList{apiResources("example.com/v2", "widgets")},
			definitions: []*definition{widgets(nil)},
			want:        []resource{of("example.com", "v2", "widgets")},
		},
		"the version that is stored need not be served": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Spec.Versions[1].Served = false })},
			want:        []resource{of("example.com", "v1beta1", "widgets")},
		},
		"a custom resource without a version that is served": {
			definitions: []*definition{unserved},
			want:        []resource{{gvr: of("example.com", "", "widgets").gvr, unserved: unserved}},
		},
		"a custom resource without a version that is served, outside namespaces": {
			definitions: []*definition{widgets(func(crd *definition) {
				crd.Spec.Versions, crd.Spec.Scope = nil, apiextensionsv1.ClusterScoped
			})},
		},
		"a custom resource that was never served": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Status.Conditions = nil })},
		},
		"a custom resource served before it is established": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Status.Conditions[0].Type = apiextensionsv1.NamesAccepted })},
			want:        []resource{of("example.com", "v1", "widgets")},
		},
		"a custom resource outside namespaces": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Spec.Scope = apiextensionsv1.ClusterScoped })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := resourcesToDelete(tc.lists, tc.definitions)
			if len(errs) != tc.wantErrors {
				t.Errorf("errors %v, want %d", errs, tc.wantErrors)
			}
			if len(tc.want) == 0 && len(got) == 0 {
				return
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(resource{})); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}
