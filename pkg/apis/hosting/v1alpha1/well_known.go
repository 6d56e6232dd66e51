// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NamespaceAnnexSystem is the namespace of objects that annex itself needs.
const NamespaceAnnexSystem = "annex-system"

// SystemNamespaces returns the namespaces that annex creates and that cannot be deleted.
func SystemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, NamespaceAnnexSystem}
}

const (
	// HostedLabel on a CustomResourceDefinition of the main cluster, with the value "true",
	// makes annex take it over.
	HostedLabel = "annex.dev/hosted"

	// PublishedByLabel on an APIService of the main cluster identifies the annex that owns
	// it; PublishedBy returns the value. annex changes no APIService without it, except
	// those that it takes over.
	PublishedByLabel = "annex.dev/published-by"

	// PublishedByHeader is a header of every response of an aggregated annex, with the same
	// value. It distinguishes them from responses of the main cluster.
	PublishedByHeader = "Annex-Published-By"

	// ServedCategory is a category of the resources that annex serves, in the discovery of
	// the main cluster. It distinguishes them from resources of definitions, whose
	// categories are DNS labels.
	ServedCategory = "annex.dev"

	// PublishedStoreAnnotation on an APIService has the UID of the Store "default" of the annex
	// that owns it. An annex with different data does not delete the APIService.
	PublishedStoreAnnotation = "annex.dev/published-store"

	// RecheckAnnotation on an unavailable APIService has the time at which annex last made the
	// main cluster check it again.
	RecheckAnnotation = "annex.dev/recheck"

	// ResourcesAnnotation on an APIService lists the resources of its version that annex
	// serves, each with the generation of its definition.
	ResourcesAnnotation = "annex.dev/resources"

	// DefinitionFromAnnotation marks, with the value DefinitionFromMain, the
	// CustomResourceDefinitions in annex that are synced from the main cluster, and the
	// HostedResources created for them.
	DefinitionFromAnnotation = "annex.dev/definition-from"

	// DefinitionFromMain is the value of DefinitionFromAnnotation.
	DefinitionFromMain = "main"

	// MainCopyAnnotation on a CustomResourceDefinition in annex means that the main cluster
	// still stores the objects from before its group was moved. The value is the time of the
	// move. Finalize deletes these objects and the annotation.
	MainCopyAnnotation = "annex.dev/main-copy"

	// UndoesAnnotation on a Migration that annex has created is the name of the Move that it undoes.
	UndoesAnnotation = "annex.dev/undoes"

	// FrozenGroupLabel is on the policies of the main cluster that freeze its copy of a group.
	// annex applies all other policies of the main cluster to its objects.
	FrozenGroupLabel = "annex.dev/frozen-group"

	// MainCopyVersion is a version that annex adds to the definitions of the main cluster to
	// reach the objects that it still stores of a group that annex serves. It is there during
	// Rollback and Finalize, and while a Move reads late writes. Clients prefer all other versions, whose
	// names sort first, but choose this one if discovery lacks them because annex is down.
	MainCopyVersion = "zz-annex-main-copy"

	// DefinitionUIDAnnotation on a CustomResourceDefinition in annex has the UID of the
	// definition in the main cluster that it is synced from. Only the deletion of a definition
	// with this UID deletes objects.
	DefinitionUIDAnnotation = "annex.dev/definition-uid"

	// DeletionPolicyAnnotation on a CustomResourceDefinition of the main cluster selects
	// whether annex deletes the objects together with it.
	DeletionPolicyAnnotation = "annex.dev/deletion-policy"

	// DeletionPolicyDelete deletes the objects, as in any cluster. It is the default.
	DeletionPolicyDelete = "Delete"

	// DeletionPolicyKeep keeps the objects, and the definition in annex.
	DeletionPolicyKeep = "Keep"

	// FinalizerPrefix is the prefix of the finalizers that annex sets on the
	// CustomResourceDefinitions of the main cluster that it syncs.
	FinalizerPrefix = "annex.dev/"

	// AutomanagedLabel marks, with the value "true", the HostedResources that annex creates
	// and deletes itself.
	AutomanagedLabel = "annex.dev/automanaged"

	// AggregateLabel on a ClusterRole of the main cluster, with the value "true", grants its
	// rules to annex.
	AggregateLabel = "annex.dev/aggregate-to-annex"
)

// Finalizer returns the finalizer of the annex with a value of PublishedByLabel.
func Finalizer(publishedBy string) string { return FinalizerPrefix + publishedBy }

// HostedRoleName is the ClusterRole of the main cluster with the rights that annex needs for a group.
// It has AggregateLabel.
func HostedRoleName(group string) string { return "annex-hosted-" + group }

// FrozenPolicyName is the ValidatingAdmissionPolicy, and its binding, that refuses changes of the
// copy that the main cluster keeps of a moved group.
func FrozenPolicyName(group string) string { return "annex-freeze." + group }

// CopyPolicyName is the ValidatingAdmissionPolicy, and its binding, that refuses writes in
// MainCopyVersion, except annex's.
func CopyPolicyName(group string) string { return "annex-copy." + group }

// HoldPolicyName is the ValidatingAdmissionPolicy, and its binding, that keeps the main cluster's
// garbage collector from deleting dependants of a group while Rollback changes their owner
// references.
func HoldPolicyName(group string) string { return "annex-hold-garbage-collector." + group }

// PublishedBy returns the value of PublishedByLabel of the annex behind a Service of the
// main cluster: "<namespace>.<name>", or a prefix of that with a hash if it is too long.
func PublishedBy(namespace, name string) string {
	const hashLength = 16
	value := namespace + "." + name
	if len(value) <= validation.LabelValueMaxLength {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return value[:validation.LabelValueMaxLength-hashLength-1] + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
