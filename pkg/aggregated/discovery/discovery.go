// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
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
// The aggregator always gets the whole document, without an ETag. It takes a response whose body was cut off,
// because annex was killed, for an empty document with the ETag of the response, and 304 would make it keep that.
//
// All resources have the category by which a rollback recognizes what a kube-apiserver read from annex.
func (a *filter) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	if !a.synced() {
		tooEarly("the APIs of annex are not known yet").writeTo(w)
		return
	}
	// A new definition may be missing after that, but not in an annex that starts.
	var missing string
	isComplete := func() bool {
		missing = a.missingFromDiscovery(r)
		return missing == ""
	}
	if !within(r.Context(), discoveryTimeout, isComplete) && a.starting() {
		tooEarly("annex is starting and discovery is missing " + missing).writeTo(w)
		return
	}
	served, failed := a.fetchDiscovery(r)
	if failed != nil {
		failed.writeTo(w)
		return
	}
	addCategory(served)
	content, err := json.Marshal(served)
	if err != nil {
		internalFailure(r.Context(), fmt.Errorf("write discovery: %w", err)).writeTo(w)
		return
	}
	w.Header().Set("Content-Type", discovery.AcceptV2)
	// It fails only if the aggregator disconnected.
	_, _ = w.Write(content)
}

func (a *filter) fetchDiscovery(r *http.Request) (*apidiscoveryv2.APIGroupDiscoveryList, *failure) {
	document, failed := a.fetch(r, discovery.AcceptV2, "")
	if failed != nil {
		return nil, failed
	}
	list := &apidiscoveryv2.APIGroupDiscoveryList{}
	if err := json.Unmarshal(document.content, list); err != nil {
		return nil, internalFailure(r.Context(), fmt.Errorf("read discovery: %w", err))
	}
	return list, nil
}

func addCategory(list *apidiscoveryv2.APIGroupDiscoveryList) {
	for _, group := range list.Items {
		for _, version := range group.Versions {
			for i := range version.Resources {
				resource := &version.Resources[i]
				resource.Categories = append(resource.Categories, hostingv1alpha1.ServedCategory)
			}
		}
	}
}

// missingFromDiscovery names a resource of a new definition that discovery lacks, or returns an empty string.
func (a *filter) missingFromDiscovery(r *http.Request) string {
	fresh := a.freshResources()
	if fresh.Len() == 0 {
		return ""
	}
	for resource := range fresh.Difference(a.discovered(r)) {
		return fmt.Sprint(resource.GroupResource(), " ", resource.Version)
	}
	return ""
}

// freshResources are the resources of definitions that may not be in discovery yet.
func (a *filter) freshResources() sets.Set[schema.GroupVersionResource] {
	fresh := sets.New[schema.GroupVersionResource]()
	for _, definition := range a.all() {
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

func (a *filter) discovered(r *http.Request) sets.Set[schema.GroupVersionResource] {
	found := sets.New[schema.GroupVersionResource]()
	list, failed := a.fetchDiscovery(r)
	if failed != nil {
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
