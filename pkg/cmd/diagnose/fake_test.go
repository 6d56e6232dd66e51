// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// fake is a kube-apiserver. Collections that it does not have are 404.
type fake struct {
	// collections has the objects of each path.
	collections map[string][]any
	// failures are the codes of paths that fail.
	failures map[string]int
	metrics  string
	// before is called with the path of each request.
	before func(path string)

	mu       sync.Mutex
	requests []string
}

// newFake returns a cluster with definitions, and no objects.
func newFake(definitions ...*apiextensionsv1.CustomResourceDefinition) *fake {
	f := &fake{collections: map[string][]any{definitionsPath: {}, apiServicesPath: {}, migrationsPath: {}}, failures: map[string]int{}}
	for _, crd := range definitions {
		f.collections[definitionsPath] = append(f.collections[definitionsPath], crd)
		for _, version := range crd.Spec.Versions {
			f.collections["/apis/"+crd.Spec.Group+"/"+version.Name+"/"+crd.Spec.Names.Plural] = []any{}
		}
	}
	return f
}

// define returns an established definition. The first version is stored.
func define(name string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	plural, group, _ := strings.Cut(name, ".")
	crd := crds.New(group, plural, versions...)
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	return crd
}

// fill adds objects of exactly this size.
func (f *fake) fill(path string, count, size int) {
	for i := range count {
		object := fmt.Sprintf(`{"n":%06d,"data":""}`, 100000+i)
		f.collections[path] = append(f.collections[path], json.RawMessage(strings.Replace(object, `""`, `"`+strings.Repeat("x", size-len(object))+`"`, 1)))
	}
}

// route sends a version to a Service.
func (f *fake) route(group, version string, labels map[string]string) {
	made := grouptest.Elsewhere(group, version, "ns", "other")
	made.Labels = labels
	f.collections[apiServicesPath] = append(f.collections[apiServicesPath], made)
}

// client starts the server, and returns its client.
func (f *fake) client(t *testing.T) restclient.Interface {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&restclient.Config{Host: server.URL, QPS: -1})
	expect.NoError(t, err)
	return client.RESTClient()
}

// survey reports on a group, or on all.
func (f *fake) survey(t *testing.T, group string) (*Report, error) {
	t.Helper()
	return Survey(t.Context(), "https://cluster.example.com", f.client(t), Options{Group: group}, io.Discard)
}

// timeout is a parameter of every request of client-go.
var timeout = regexp.MustCompile(`[?&]timeout=32s`)

// ServeHTTP answers metrics and pages.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+timeout.ReplaceAllString(r.URL.RequestURI(), ""))
	if f.before != nil {
		f.before(r.URL.Path)
	}
	objects, found := f.collections[r.URL.Path]
	code := f.failures[r.URL.Path]
	switch {
	case code != 0:
	case r.Method == http.MethodPost && r.URL.Path == reviewPath:
		fmt.Fprint(w, `{"status":{"userInfo":{"username":"jane's"}}}`)
		return
	case r.URL.Path == "/metrics" && f.metrics != "":
		fmt.Fprint(w, f.metrics)
		return
	case r.URL.Path == "/metrics":
		code = http.StatusForbidden
	case !found:
		code = http.StatusNotFound
	}
	if code != 0 {
		fail(w, code)
		return
	}
	query := r.URL.Query()
	limit, err := strconv.Atoi(query.Get("limit"))
	from := 0
	if token := query.Get("continue"); token != "" && err == nil {
		from, err = strconv.Atoi(token)
	}
	if err != nil {
		fail(w, http.StatusBadRequest)
		return
	}
	if gone := f.failures["continue "+r.URL.Path]; gone != 0 && from > 0 {
		fail(w, gone)
		return
	}
	page := metav1.ListMeta{ResourceVersion: strconv.Itoa(1000 + len(f.requests))}
	to := len(objects)
	if from+limit < to {
		to = from + limit
		page.Continue, page.RemainingItemCount = strconv.Itoa(to), new(int64(len(objects)-to))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "items": objects[from:to], "kind": "List", "metadata": page})
}

func fail(w http.ResponseWriter, code int) {
	reasons := map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusGone: metav1.StatusReasonExpired}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: "no, " + strconv.Itoa(code),
	})
}

// migrated has a Migration of a group with one resource that is complete.
func (f *fake) migrated(operation hostingv1alpha1.MigrationOperation, group, plural string, objects, bytes int64) {
	f.collections[migrationsPath] = append(f.collections[migrationsPath], &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Spec:       hostingv1alpha1.MigrationSpec{Group: group, Operation: operation},
		Status: hostingv1alpha1.MigrationStatus{
			Phase: hostingv1alpha1.MigrationCompleted, Objects: objects,
			Resources: []hostingv1alpha1.MigrationResourceStatus{{Name: plural + "." + group, Objects: objects, CopiedBytes: bytes}},
		},
	})
}
