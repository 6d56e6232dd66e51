// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// DefaultDeletionsPerSecond is the default maximum rate of a retention.
const DefaultDeletionsPerSecond = 100

// SetDefaults_Retention sets the defaults of a retention.
func SetDefaults_Retention(obj *Retention) {
	if obj.DeletionsPerSecond == 0 {
		obj.DeletionsPerSecond = DefaultDeletionsPerSecond
	}
}

// SetDefaults_RetentionCondition sets the defaults of a condition of a retention rule.
func SetDefaults_RetentionCondition(obj *RetentionCondition) {
	if obj.Status == "" {
		obj.Status = metav1.ConditionTrue
	}
}

// SetDefaults_RetentionKeepNewest sets the defaults of the newest objects that a rule keeps.
func SetDefaults_RetentionKeepNewest(obj *RetentionKeepNewest) {
	if obj.Per == "" {
		obj.Per = RetentionPerNamespace
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

// SetDefaults_InjectionProfileSpec sets the defaults of the spec of an InjectionProfile.
func SetDefaults_InjectionProfileSpec(obj *InjectionProfileSpec) {
	if obj.Mode == "" {
		obj.Mode = InjectionOptOut
	}
}

// SetDefaults_InjectionTemplate sets the defaults of the place of a pod template.
func SetDefaults_InjectionTemplate(obj *InjectionTemplate) {
	if obj.Type == "" {
		obj.Type = InjectionPodTemplate
	}
}
