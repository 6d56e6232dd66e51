// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DefaultKeyPrefix is the default key prefix of an etcd Store.
const DefaultKeyPrefix = "/annex"

// SetDefaults_EtcdStore sets the defaults of an etcd Store.
func SetDefaults_EtcdStore(obj *EtcdStore) {
	if obj.KeyPrefix == "" {
		obj.KeyPrefix = DefaultKeyPrefix
	}
}

// SetDefaults_SecretReference sets the defaults of a reference to a Secret.
func SetDefaults_SecretReference(obj *SecretReference) {
	if obj.Namespace == "" {
		obj.Namespace = NamespaceAnnexSystem
	}
}

// SetDefaults_HostedResourceSpec sets the defaults of the spec of a HostedResource.
func SetDefaults_HostedResourceSpec(obj *HostedResourceSpec) {
	if obj.SchedulerName == "" {
		obj.SchedulerName = DefaultSchedulerName
	}
}

// SetDefaults_Toleration sets the defaults of a toleration.
func SetDefaults_Toleration(obj *Toleration) {
	if obj.Operator == "" {
		obj.Operator = TolerationOpEqual
	}
}

// SetDefaults_MigrationSpec sets the defaults of the spec of a Migration.
func SetDefaults_MigrationSpec(obj *MigrationSpec) {
	if obj.Switch == "" {
		obj.Switch = MigrationSwitchAutomatic
	}
	if obj.Operation == "" && obj.Group != "" {
		obj.Operation = MigrationMove
	}
}
