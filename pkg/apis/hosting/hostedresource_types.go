// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Types of conditions of a HostedResource that the registry reads or writes.
const (
	HostedResourceScheduled        = "Scheduled"
	HostedResourceWithinLimits     = "WithinLimits"
	HostedResourceReady            = "Ready"
	HostedResourcePublished        = "Published"
	HostedResourceDefinitionSynced = "DefinitionSynced"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResource is a resource that annex stores, named "<plural>.<group>".
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

// HostedResourceSpec is the Store of a resource, or how to choose one.
type HostedResourceSpec struct {
	// StoreName is the Store of the objects; immutable once set.
	StoreName string
	// StoreSelector restricts the choice to Stores with these labels.
	StoreSelector *metav1.LabelSelector
	// Tolerations allow Stores with matching taints.
	Tolerations []Toleration
	// Priority orders the resources that wait for a Store, highest first.
	Priority int32
	// Requests is the expected usage.
	Requests ResourceList
	// Compression in the Store; the server chooses if empty.
	Compression Compression
	// SchedulerName is the scheduler that chooses the Store.
	SchedulerName string
	// Limits is the maximum in all namespaces together.
	Limits ResourceList
	// NamespaceLimits is the maximum in each namespace.
	NamespaceLimits ResourceList
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceBinding places a HostedResource on a Store.
type HostedResourceBinding struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	// StoreName is the Store of the objects.
	StoreName string
}

// TolerationOperator compares the value of a toleration with that of a taint.
type TolerationOperator string

// Operators of tolerations.
const (
	TolerationOpExists TolerationOperator = "Exists"
	TolerationOpEqual  TolerationOperator = "Equal"
)

// Toleration allows Stores with the taints that it matches.
type Toleration struct {
	Key      string
	Operator TolerationOperator
	Value    string
	Effect   TaintEffect
}

// Compression is how objects are compressed in a Store.
type Compression string

// Compressions.
const (
	CompressionNone Compression = "None"
	CompressionZstd Compression = "Zstd"
)

// HostedResourcePhase summarizes the lifecycle of a resource.
type HostedResourcePhase string

// Phases.
const (
	HostedResourcePending     HostedResourcePhase = "Pending"
	HostedResourceHosted      HostedResourcePhase = "Hosted"
	HostedResourceTerminating HostedResourcePhase = "Terminating"
)

// HostedResourceTakeover is one generation of a CustomResourceDefinition in annex.
type HostedResourceTakeover struct {
	DefinitionUID        types.UID
	DefinitionGeneration int64
}

// HostedResourceStatus is the observed state of a resource.
type HostedResourceStatus struct {
	Phase      HostedResourcePhase
	Conditions []metav1.Condition
	// DefinitionUID is the UID of the CustomResourceDefinition of the stored objects.
	DefinitionUID types.UID
	// Takeover is the definition that may be published although the main cluster has one of
	// the same name.
	Takeover *HostedResourceTakeover
	// Objects is the number of objects in all namespaces, Bytes their size before
	// compression, StoredBytes their size in the Store, and CachedBytes the memory used to
	// serve them, 0 if unknown.
	Objects     int64
	Bytes       int64
	StoredBytes int64
	CachedBytes int64
}
