// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiserviceslisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// priority orders groups in discovery, and versions in a group, from the highest number
// down.
type priority struct{ group, version int32 }

// crdPriority is lower than the priority of any compiled-in group, and the same for all
// versions, so that they sort by their Kubernetes-like names.
var crdPriority = priority{group: 1000, version: 100}

// autoRegisterWorkers bounds concurrent writes of APIServices.
const autoRegisterWorkers = 5

// registerAPIServices makes the aggregator keep one local APIService for each
// version that the delegate serves and for each served version of a CRD.
func registerAPIServices(aggregator *aggregatorapiserver.APIAggregator, delegate genericapiserver.DelegationTarget, crds crdinformers.CustomResourceDefinitionInformer) error {
	annexClient, err := apiregistrationclient.NewForConfig(aggregator.GenericAPIServer.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("create a client for APIServices: %w", err)
	}
	apiServices := aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices()
	registration := autoregister.NewAutoRegisterController(apiServices, annexClient)
	compiledIn, err := groupVersionsFromPaths(delegate.ListedPaths())
	if err != nil {
		return err
	}
	var names []string
	for _, groupVersion := range compiledIn {
		apiService := newAPIService(groupVersion, priorities[groupVersion])
		registration.AddAPIServiceToSync(apiService)
		names = append(names, apiService.Name)
	}
	for groupVersion, p := range priorities {
		aggregator.GenericAPIServer.AggregatedDiscoveryGroupManager.SetGroupVersionPriority(metav1.GroupVersion(groupVersion), int(p.group), int(p.version))
	}
	crdsRegistered, err := registerCRDs(crds, registration)
	if err != nil {
		return err
	}
	err = aggregator.GenericAPIServer.AddPostStartHook("annex-apiservice-registration", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			// Otherwise the first pass would delete the APIServices of CRDs that are
			// not known yet.
			if cache.WaitForNamedCacheSyncWithContext(hook, crdsRegistered) {
				registration.Run(autoRegisterWorkers, hook.Done())
			}
		}()
		return nil
	})
	if err != nil {
		return err
	}
	return aggregator.GenericAPIServer.AddBootSequenceHealthChecks(allAvailableOnce("autoregister-completion", names, apiServices.Lister()))
}

// groupVersionsFromPaths returns the group versions in a server's paths.
func groupVersionsFromPaths(paths []string) ([]schema.GroupVersion, error) {
	var groupVersions []schema.GroupVersion
	for _, path := range paths {
		var groupVersion schema.GroupVersion
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		switch {
		case len(parts) == 2 && parts[0] == "api":
			groupVersion.Version = parts[1]
		case len(parts) == 3 && parts[0] == "apis":
			groupVersion.Group, groupVersion.Version = parts[1], parts[2]
		default:
			continue
		}
		if _, ok := priorities[groupVersion]; !ok {
			return nil, fmt.Errorf("%s is served but has no discovery priority", groupVersion)
		}
		groupVersions = append(groupVersions, groupVersion)
	}
	return groupVersions, nil
}

func newAPIService(groupVersion schema.GroupVersion, p priority) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: groupVersion.Version + "." + groupVersion.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                groupVersion.Group,
			Version:              groupVersion.Version,
			GroupPriorityMinimum: p.group,
			VersionPriority:      p.version,
		},
	}
}

// allAvailableOnce is unhealthy until all the named APIServices were available
// together. Later changes do not affect it.
func allAvailableOnce(check string, names []string, lister apiserviceslisters.APIServiceLister) healthz.HealthChecker {
	var done atomic.Bool
	return healthz.NamedCheck(check, func(*http.Request) error {
		if done.Load() {
			return nil
		}
		for _, name := range names {
			apiService, err := lister.Get(name)
			if err != nil {
				return fmt.Errorf("APIService %s is not registered yet: %w", name, err)
			}
			if !apiregistrationhelper.IsAPIServiceConditionTrue(apiService, apiregistrationv1.Available) {
				return fmt.Errorf("APIService %s is not available yet", name)
			}
		}
		done.Store(true)
		return nil
	})
}
