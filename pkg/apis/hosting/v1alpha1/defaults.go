// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

const (
	// DefaultKeyPrefix is the key prefix of an etcd Store that names none.
	DefaultKeyPrefix = "/annex"

	// DefaultSecretNamespace is the namespace of a Secret referred to without one.
	DefaultSecretNamespace = "annex-system"
)

func addDefaultingFuncs(scheme *runtime.Scheme) error {
	return RegisterDefaults(scheme)
}

// SetDefaults_EtcdStore fills in what an etcd Store leaves out.
func SetDefaults_EtcdStore(obj *EtcdStore) {
	if obj.KeyPrefix == "" {
		obj.KeyPrefix = DefaultKeyPrefix
	}
}

// SetDefaults_SecretReference fills in what a reference to a Secret leaves out.
func SetDefaults_SecretReference(obj *SecretReference) {
	if obj.Namespace == "" {
		obj.Namespace = DefaultSecretNamespace
	}
}

// SetDefaults_HostedResourceSpec fills in what the spec of a HostedResource
// leaves out.
func SetDefaults_HostedResourceSpec(obj *HostedResourceSpec) {
	if obj.SchedulerName == "" {
		obj.SchedulerName = DefaultSchedulerName
	}
}

// SetDefaults_Toleration fills in what a toleration leaves out.
func SetDefaults_Toleration(obj *Toleration) {
	if obj.Operator == "" {
		obj.Operator = TolerationOpEqual
	}
}
