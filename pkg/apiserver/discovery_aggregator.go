// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/client-go/discovery"
)

// discoveryPath has all groups, versions and resources in one answer.
const discoveryPath = "/apis"

// discoveryPatience is how long the aggregator is made to wait for the rest: it has
// five seconds, and everything of annex's waits with it.
const discoveryPatience = time.Second

// serveDiscovery tells the aggregator what annex serves once that is all. It asks as
// soon as a version is published and then once a minute, and believes what it gets:
// for that long users would not find a kind that came a moment later, and the main
// cluster would leave its objects behind in namespaces that it deletes.
func (a *aggregatorFilter) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	if !a.synced() {
		tooEarly("annex does not know yet what it serves").writeTo(w)
		return
	}
	if missing := a.waitForDiscovery(r); missing != "" && a.starting() {
		tooEarly("annex is starting and has yet to discover " + missing).writeTo(w)
		return
	}
	a.next.ServeHTTP(w, r)
}

// waitForDiscovery waits until discovery has all that was defined just now, for as
// long as it may, and returns what is still missing.
func (a *aggregatorFilter) waitForDiscovery(r *http.Request) (missing string) {
	ctx, cancel := context.WithTimeout(r.Context(), discoveryPatience)
	defer cancel()
	for {
		fresh := a.freshResources()
		if fresh.Len() == 0 {
			return ""
		}
		if missing = firstMissing(fresh, a.discovered(r)); missing == "" {
			return ""
		}
		select {
		case <-ctx.Done():
			return missing
		case <-time.After(settlingPoll):
		}
	}
}

// freshResources are those of definitions that may not be in discovery yet.
func (a *aggregatorFilter) freshResources() sets.Set[schema.GroupVersionResource] {
	fresh := sets.New[schema.GroupVersionResource]()
	// A lister reads memory; it has no way to fail.
	all, _ := a.definitions.List(labels.Everything())
	for _, definition := range all {
		if !a.maySettle(definition) || isTerminating(definition) {
			continue
		}
		for _, version := range definition.Spec.Versions {
			if version.Served {
				fresh.Insert(schema.GroupVersionResource{Group: definition.Spec.Group, Version: version.Name, Resource: definition.Spec.Names.Plural})
			}
		}
	}
	return fresh
}

// isTerminating reports whether a definition is going away, and out of discovery
// before it is gone.
func isTerminating(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return !definition.DeletionTimestamp.IsZero()
}

// discovered are the resources that annex tells of now.
func (a *aggregatorFilter) discovered(r *http.Request) sets.Set[schema.GroupVersionResource] {
	found := sets.New[schema.GroupVersionResource]()
	inner := r.Clone(r.Context())
	inner.Header = http.Header{"Accept": {discovery.AcceptV2}}
	writer := responsewriter.NewInMemoryResponseWriter()
	a.next.ServeHTTP(writer, inner)
	var list apidiscoveryv2.APIGroupDiscoveryList
	if writer.RespCode() != http.StatusOK || json.Unmarshal(writer.Data(), &list) != nil {
		return found
	}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			for _, resource := range version.Resources {
				found.Insert(schema.GroupVersionResource{Group: group.Name, Version: version.Version, Resource: resource.Resource})
			}
		}
	}
	return found
}

// firstMissing names a resource that is wanted and not there.
func firstMissing(wanted, found sets.Set[schema.GroupVersionResource]) string {
	for resource := range wanted.Difference(found) {
		return fmt.Sprint(resource.GroupResource(), " ", resource.Version)
	}
	return ""
}
