// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiserviceslisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestGroupVersionsFromPaths(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		paths   []string
		want    []schema.GroupVersion
		wantErr bool
	}{
		"versions among other paths": {
			paths: []string{"/api", "/api/v1", "/apis", "/apis/events.k8s.io", "/apis/events.k8s.io/v1", "/healthz", "/openapi/v3", "/apis/events.k8s.io/v1/watch"},
			want:  []schema.GroupVersion{{Version: "v1"}, {Group: "events.k8s.io", Version: "v1"}},
		},
		"a version without priority": {paths: []string{"/apis/example.com/v1"}, wantErr: true},
		"nothing":                    {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := groupVersionsFromPaths(tc.paths)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error is %v, want one: %v", err, tc.wantErr)
			}
			expect.Equal(t, tc.want, got, "group versions")
		})
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	for _, group := range AllGroups() {
		if group.priority.group == 0 || group.priority.version == 0 {
			t.Errorf("%s has no discovery priority", group.version)
		}
	}
}

func TestAllAvailableOnce(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	check := allAvailableOnce("test", []string{"v1.a.com", "v1.b.com"}, apiserviceslisters.NewAPIServiceLister(indexer))
	set := func(name string, status apiregistrationv1.ConditionStatus) {
		apiService := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}}
		apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status}}
		expect.NoError(t, indexer.Add(apiService))
	}
	steps := []struct {
		name    string
		do      func()
		healthy bool
	}{
		{"none is registered", func() {}, false},
		{"one is missing", func() { set("v1.a.com", apiregistrationv1.ConditionTrue) }, false},
		{"one is not available", func() { set("v1.b.com", apiregistrationv1.ConditionFalse) }, false},
		{"all are available", func() { set("v1.b.com", apiregistrationv1.ConditionTrue) }, true},
		{"one becomes unavailable later", func() { set("v1.a.com", apiregistrationv1.ConditionFalse) }, true},
	}
	for _, step := range steps {
		step.do()
		if err := check.Check(nil); (err == nil) != step.healthy {
			t.Errorf("when %s, the check returns %v", step.name, err)
		}
	}
}
