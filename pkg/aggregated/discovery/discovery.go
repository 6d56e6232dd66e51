// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

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

// discoveryPath returns all groups, versions and resources in one response.
const discoveryPath = "/apis"

// discoveryTimeout bounds how long the aggregator waits for new definitions: its own
// timeout is five seconds, and all groups of annex wait with it.
const discoveryTimeout = time.Second

// serveDiscovery serves discovery to the aggregator once it is complete. The aggregator
// fetches it as soon as a version is published and then once a minute: for that long
// users would not find a kind that was missing, and the main cluster would not delete
// its objects with their namespace.
//
// The aggregator always gets the whole document. It takes a response whose body was cut off, because annex was
// killed, for an empty document with the ETag of the response, and 304 would make it keep that.
func (a *filter) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	if !a.synced() {
		tooEarly("the APIs of annex are not known yet").writeTo(w)
		return
	}
	if missing := a.waitForDiscovery(r); missing != "" && a.starting() {
		tooEarly("annex is starting and discovery is missing " + missing).writeTo(w)
		return
	}
	whole := r.Clone(r.Context())
	whole.Header.Del("If-None-Match")
	a.next.ServeHTTP(w, whole)
}

// waitForDiscovery waits until discovery contains all new definitions, at most for
// discoveryTimeout, and returns a missing one.
func (a *filter) waitForDiscovery(r *http.Request) (missing string) {
	ctx, cancel := context.WithTimeout(r.Context(), discoveryTimeout)
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
		case <-time.After(settlingInterval):
		}
	}
}

// freshResources are those of definitions that may not be in discovery yet.
func (a *filter) freshResources() sets.Set[schema.GroupVersionResource] {
	fresh := sets.New[schema.GroupVersionResource]()
	// A lister reads memory and cannot fail.
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

// isTerminating reports whether a definition is being deleted. Discovery drops it before
// it is gone.
func isTerminating(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return !definition.DeletionTimestamp.IsZero()
}

// discovered are the resources in annex's discovery now.
func (a *filter) discovered(r *http.Request) sets.Set[schema.GroupVersionResource] {
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

// firstMissing names a resource of wanted that was not found.
func firstMissing(wanted, found sets.Set[schema.GroupVersionResource]) string {
	for resource := range wanted.Difference(found) {
		return fmt.Sprint(resource.GroupResource(), " ", resource.Version)
	}
	return ""
}
