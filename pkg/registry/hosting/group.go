// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosting is the REST storage of hosting.annex.dev, one file per resource. Backups have
// endpoints below their Store or HostedResource.
package hosting

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewGroup creates the storage of hosting.annex.dev.
func NewGroup(getter generic.RESTOptionsGetter, backend Backend) (genericapiserver.APIGroupInfo, error) {
	endpoints, err := typed.NewEndpoints(getter, stores, hostedResources, migrations, injectionProfiles, staticSources)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	stores, hostedResources, migrations := endpoints.REST("stores"), endpoints.REST("hostedresources"), endpoints.REST("migrations")
	stores.MayDelete = storeUse{hostedResources: hostedResources, migrations: migrations}.mayDelete
	hostedResources.MayDelete = mayDeleteHostedResource
	endpoints["hostedresources/binding"] = newBindingREST(hostedResources, stores, migrations)
	backups := backups{stores: stores, resources: hostedResources, storeStatus: endpoints["stores/status"].(rest.Updater), backend: backend, now: metav1.Now}
	endpoints["stores/backup"] = backups.ofStore()
	endpoints["stores/restore"] = backups.restore()
	endpoints["hostedresources/backup"] = backups.ofResource()
	return endpoints.Group(v1alpha1.SchemeGroupVersion), nil
}

// conditionStatus returns the cell with the status of a condition.
func conditionStatus(conditions []metav1.Condition, name string) string {
	return conditionOr(string(metav1.ConditionUnknown), conditions, name)
}

// conditionOr returns the cell with the status of a condition, or missing.
func conditionOr(missing string, conditions []metav1.Condition, name string) string {
	if condition := meta.FindStatusCondition(conditions, name); condition != nil {
		return string(condition.Status)
	}
	return missing
}

// conditionMessage returns the cell with the message of a condition.
func conditionMessage(conditions []metav1.Condition, name string) string {
	if condition := meta.FindStatusCondition(conditions, name); condition != nil {
		return condition.Message
	}
	return ""
}
