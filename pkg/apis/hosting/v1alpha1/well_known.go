// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// HostedLabel asks annex, with the value "true", to take over a
	// CustomResourceDefinition of the main cluster.
	HostedLabel = "annex.dev/hosted"

	// PublishedByLabel says which annex keeps an APIService of the main cluster:
	// its value is what PublishedBy returns. annex never changes one without it,
	// but for those that it takes over.
	PublishedByLabel = "annex.dev/published-by"

	// PublishedByHeader is a header of every answer that annex gives behind a main
	// cluster, with the same value. It tells annex's answers from those that the
	// main cluster gives itself.
	PublishedByHeader = "Annex-Published-By"

	// PublishedStoreAnnotation is the UID of the Store "default" of the annex
	// that keeps an APIService. An annex that was started on other data does not
	// take what the first one published for a leftover of its own.
	PublishedStoreAnnotation = "annex.dev/published-store"

	// RecheckAnnotation on an APIService is when annex last had the main cluster
	// look again at one that it called unavailable.
	RecheckAnnotation = "annex.dev/recheck"

	// ResourcesAnnotation on an APIService names the resources that annex serves
	// in its version, each with the generation of its definition.
	ResourcesAnnotation = "annex.dev/resources"

	// DefinitionFromAnnotation marks, with the value DefinitionFromMain, the
	// CustomResourceDefinitions in annex that follow those of the main cluster,
	// and the HostedResources that exist because the main cluster has a
	// definition for annex to follow.
	DefinitionFromAnnotation = "annex.dev/definition-from"

	// DefinitionFromMain is the value of DefinitionFromAnnotation.
	DefinitionFromMain = "main"

	// DefinitionUIDAnnotation on a CustomResourceDefinition in annex is the UID of the
	// main cluster's that it follows. Only the deletion of that one deletes objects.
	DefinitionUIDAnnotation = "annex.dev/definition-uid"

	// DeletionPolicyAnnotation on a CustomResourceDefinition of the main cluster says
	// what becomes of the objects in annex when it is deleted.
	DeletionPolicyAnnotation = "annex.dev/deletion-policy"

	// DeletionPolicyDelete is the default. It deletes them, as any cluster does.
	DeletionPolicyDelete = "Delete"

	// DeletionPolicyKeep keeps them, and annex's definition.
	DeletionPolicyKeep = "Keep"

	// FinalizerPrefix is what the finalizers begin with that annex puts on the
	// CustomResourceDefinitions of the main cluster that it follows.
	FinalizerPrefix = "annex.dev/"

	// DefinitionCompiledIn is what status.definitionUID of a HostedResource says of a
	// resource that needs no CustomResourceDefinition.
	DefinitionCompiledIn = "compiled-in"

	// AutomanagedLabel marks, with the value "true", the HostedResources that
	// annex made by itself and deletes by itself.
	AutomanagedLabel = "annex.dev/automanaged"

	// AggregateLabel gives, with the value "true" on a ClusterRole of the main
	// cluster, annex the rights of that role: RBAC adds them to annex's own.
	AggregateLabel = "annex.dev/aggregate-to-annex"
)

// Finalizer is that of the annex with a value of PublishedByLabel.
func Finalizer(publishedBy string) string { return FinalizerPrefix + publishedBy }

// PublishedBy is the value of PublishedByLabel of the annex that the main cluster
// reaches through a Service: "<namespace>.<name>", or, where that is too long for
// a label, its beginning and a hash of all of it.
func PublishedBy(namespace, name string) string {
	const hashLength = 16
	value := namespace + "." + name
	if len(value) <= validation.LabelValueMaxLength {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return value[:validation.LabelValueMaxLength-hashLength-1] + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
