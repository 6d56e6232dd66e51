// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// HostedResourceEstablished is the type of the condition that says whether
	// the resource is defined and its names are accepted.
	HostedResourceEstablished = "Established"

	// HostedResourceStoreReady is the type of the condition that says whether the
	// resource has a Store and that Store exists and is ready.
	HostedResourceStoreReady = "StoreReady"

	// HostedResourceScheduled is the type of the condition that says whether a Store
	// has been chosen for the resource.
	HostedResourceScheduled = "Scheduled"

	// HostedResourceObjectsReadable is the type of the condition that says whether every
	// object of the resource in the Store can be read.
	HostedResourceObjectsReadable = "ObjectsReadable"

	// HostedResourceWithinLimits is the type of the condition that says whether
	// there is room below the resource's limits.
	HostedResourceWithinLimits = "WithinLimits"

	// HostedResourceReady is the type of the condition that sums up the others:
	// requests for the resource are answered.
	HostedResourceReady = "Ready"

	// HostedResourcePublished is the type of the condition that says whether the
	// main cluster sends requests for the resource to annex.
	HostedResourcePublished = "Published"

	// HostedResourceDefinitionSynced is the type of the condition that says
	// whether annex follows the definition of the resource in the main cluster.
	HostedResourceDefinitionSynced = "DefinitionSynced"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResource is one resource that annex keeps, named "<plural>.<group>".
type HostedResource struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   HostedResourceSpec
	Status HostedResourceStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceList is a list of HostedResources.
type HostedResourceList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []HostedResource
}

// HostedResourceSpec says which Store holds a resource, or how one is to be
// chosen.
type HostedResourceSpec struct {
	// StoreName is the Store that holds the objects; set once, then never changed.
	StoreName string
	// StoreSelector restricts the choice of a Store to those with these labels.
	StoreSelector *metav1.LabelSelector
	// Tolerations let the resource onto Stores with taints that match them.
	Tolerations []Toleration
	// Priority orders resources that wait for a Store, the highest first.
	Priority int32
	// Requests is how much of a Store the resource is expected to take.
	Requests ResourceList
	// Compression wished for in the Store; empty leaves it to the server.
	Compression Compression
	// SchedulerName is the scheduler that chooses a Store for the resource.
	SchedulerName string
	// Limits is how much there may be of the resource in all namespaces together.
	Limits ResourceList
	// NamespaceLimits is how much there may be of the resource in each namespace.
	NamespaceLimits ResourceList
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceBinding places a HostedResource on a Store.
type HostedResourceBinding struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	// StoreName is the Store that is to hold the objects of the resource.
	StoreName string
}

// TolerationOperator is how a toleration's value is compared with a taint's.
type TolerationOperator string

const (
	// TolerationOpExists tolerates every value of the taint's key.
	TolerationOpExists TolerationOperator = "Exists"

	// TolerationOpEqual tolerates the taint if the values are equal.
	TolerationOpEqual TolerationOperator = "Equal"
)

// Toleration lets a resource onto a Store in spite of the taints it matches.
type Toleration struct {
	Key      string
	Operator TolerationOperator
	Value    string
	Effect   TaintEffect
}

// Compression is how objects are compressed in a Store.
type Compression string

const (
	// CompressionNone keeps objects as they are.
	CompressionNone Compression = "None"

	// CompressionZstd compresses objects with Zstandard.
	CompressionZstd Compression = "Zstd"
)

// HostedResourcePhase sums up where a resource is in its life.
type HostedResourcePhase string

const (
	// HostedResourcePending is a resource that is not served: nothing defines it yet, or
	// it has no Store.
	HostedResourcePending HostedResourcePhase = "Pending"

	// HostedResourceHosted is a resource that is defined and served.
	HostedResourceHosted HostedResourcePhase = "Hosted"

	// HostedResourceTerminating is a resource whose definition is being deleted,
	// its objects with it.
	HostedResourceTerminating HostedResourcePhase = "Terminating"
)

// HostedResourceTakeover names a definition in annex, by one generation of it.
type HostedResourceTakeover struct {
	DefinitionUID        types.UID
	DefinitionGeneration int64
}

// HostedResourceStatus is what annex last saw of a resource.
type HostedResourceStatus struct {
	Phase      HostedResourcePhase
	Conditions []metav1.Condition
	// DefinitionUID is the UID of the CustomResourceDefinition whose objects the
	// Store holds.
	DefinitionUID types.UID
	// Takeover is the definition that may be published although the main cluster has
	// one of the same name.
	Takeover *HostedResourceTakeover
	// Objects is the number of objects of the resource, in all namespaces.
	Objects int64
	// Bytes is the size of those objects before compression.
	Bytes int64
	// StoredBytes is the size of those objects in the Store.
	StoredBytes int64
	// CachedBytes is the memory used to serve those objects, 0 while unknown.
	CachedBytes int64
}
