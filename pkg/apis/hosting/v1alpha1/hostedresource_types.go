// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultSchedulerName is the scheduler of a HostedResource that names none.
const DefaultSchedulerName = "annex-scheduler"

const (
	// HostedResourceEstablished is the type of the condition that says whether
	// the resource is defined and its names are accepted, as its
	// CustomResourceDefinition says.
	HostedResourceEstablished = "Established"

	// HostedResourceStoreReady is the type of the condition that says whether the
	// resource has a Store and that Store exists and is ready.
	HostedResourceStoreReady = "StoreReady"

	// HostedResourceScheduled is the type of the condition that says whether a Store
	// has been chosen for the resource.
	HostedResourceScheduled = "Scheduled"

	// HostedResourceObjectsReadable is the type of the condition that says whether every
	// object of the resource in the Store can be read. It is absent until one could
	// not.
	HostedResourceObjectsReadable = "ObjectsReadable"

	// HostedResourceWithinLimits is the type of the condition that says whether
	// there is room below the resource's limits. It is absent if it has none.
	HostedResourceWithinLimits = "WithinLimits"

	// HostedResourceReady is the type of the condition that sums up the others:
	// requests for the resource are answered.
	HostedResourceReady = "Ready"

	// HostedResourcePublished is the type of the condition that says whether the
	// main cluster sends requests for the resource to annex. It is absent where
	// annex stands alone.
	HostedResourcePublished = "Published"

	// HostedResourceDefinitionSynced is the type of the condition that says
	// whether annex follows the definition of the resource in the main cluster.
	// It is absent for resources that are defined in annex itself.
	HostedResourceDefinitionSynced = "DefinitionSynced"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=Bind,verb=create,subresource=binding,input=HostedResourceBinding,result=HostedResourceBinding
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResource is one resource that annex keeps: which Store holds its
// objects, and how much there is of it. It is named "<plural>.<group>", as the
// CustomResourceDefinition of the resource is. annex makes one for every
// CustomResourceDefinition; it may also be made first, to say in advance where
// the resource goes.
type HostedResource struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata. The name is "<plural>.<group>".
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which Store holds the resource, or how one is to be chosen.
	// +optional
	Spec HostedResourceSpec `json:"spec,omitempty"`

	// status is what annex last saw of the resource. Read-only.
	// +optional
	Status HostedResourceStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceList is a list of HostedResources.
type HostedResourceList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the HostedResources.
	Items []HostedResource `json:"items"`
}

// HostedResourceSpec says which Store holds a resource, or how one is to be
// chosen.
type HostedResourceSpec struct {
	// storeName is the Store that holds the objects of the resource. It may be
	// given when the HostedResource is made; else a scheduler chooses one and
	// sets it through the "binding" subresource. It never changes after that: the
	// objects would not follow.
	// +optional
	StoreName string `json:"storeName,omitempty"`

	// storeSelector restricts the choice of a Store to those with these labels.
	// Not set, every Store may be chosen. It has no effect once storeName is set.
	// +optional
	StoreSelector *metav1.LabelSelector `json:"storeSelector,omitempty"`

	// tolerations let the resource onto Stores with taints that match them.
	// +listType=atomic
	// +optional
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// priority orders resources that wait for a Store: the highest is placed
	// first. Defaults to 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// requests is how much of a Store the resource is expected to take: "storage"
	// (bytes, for example 2Gi) and "objects" (a whole number, for example 100k).
	// It guides placement and is not a limit on writes.
	// +optional
	Requests ResourceList `json:"requests,omitempty"`

	// compression of the resource's objects in the Store: None, or Zstd. Not
	// set, the server decides. It says how objects are written from now on; those
	// that are there are read whichever way they were written.
	// status.storedBytes against status.bytes shows what is gained.
	// +optional
	Compression Compression `json:"compression,omitempty"`

	// schedulerName is the scheduler that chooses a Store for the resource.
	// Defaults to "annex-scheduler".
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// limits is how much there may be of the resource in all namespaces together:
	// "objects" (a whole number) and "storage" (the bytes that the objects take in
	// the Store). What would exceed a limit is refused; what is there already stays.
	// +optional
	Limits ResourceList `json:"limits,omitempty"`

	// namespaceLimits is how much there may be of the resource in each namespace.
	// It has the same keys as limits, and no meaning for resources without namespaces.
	// +optional
	NamespaceLimits ResourceList `json:"namespaceLimits,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceBinding places a HostedResource on a Store. It is what a scheduler
// posts to the "binding" subresource of the HostedResource.
type HostedResourceBinding struct {
	metav1.TypeMeta `json:""`

	// metadata names the HostedResource. If it has a UID or a resource version, the
	// HostedResource must have the same.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// storeName is the Store that is to hold the objects of the resource.
	StoreName string `json:"storeName"`
}

// TolerationOperator is how a toleration's value is compared with a taint's.
// +enum
type TolerationOperator string

const (
	// TolerationOpExists tolerates every value of the taint's key.
	TolerationOpExists TolerationOperator = "Exists"

	// TolerationOpEqual tolerates the taint if the values are equal.
	TolerationOpEqual TolerationOperator = "Equal"
)

// Toleration lets a resource onto a Store in spite of the taints it matches.
type Toleration struct {
	// key of the taints that are tolerated. Empty, with the operator Exists,
	// tolerates all keys.
	// +optional
	Key string `json:"key,omitempty"`

	// operator compares the values: Equal, which is the default, or Exists,
	// which tolerates every value.
	// +optional
	Operator TolerationOperator `json:"operator,omitempty"`

	// value that the taint must have. Empty if the operator is Exists.
	// +optional
	Value string `json:"value,omitempty"`

	// effect that is tolerated: NoSchedule or PreferNoSchedule. Empty tolerates
	// both.
	// +optional
	Effect TaintEffect `json:"effect,omitempty"`
}

// Compression is how objects are compressed in a Store.
// +enum
type Compression string

const (
	// CompressionNone keeps objects as they are.
	CompressionNone Compression = "None"

	// CompressionZstd compresses objects with Zstandard.
	CompressionZstd Compression = "Zstd"
)

// HostedResourcePhase sums up where a resource is in its life.
// +enum
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

// HostedResourceTakeover names the definition in annex that may be published although
// the main cluster has one of the same name.
type HostedResourceTakeover struct {
	// definitionUID is the UID of that CustomResourceDefinition.
	DefinitionUID types.UID `json:"definitionUID"`

	// definitionGeneration is the only generation of it that may be published: another
	// may serve versions of which the main cluster keeps objects.
	DefinitionGeneration int64 `json:"definitionGeneration"`
}

// HostedResourceStatus is what annex last saw of a resource.
type HostedResourceStatus struct {
	// phase is Pending while nothing defines the resource, Hosted while it is
	// served, and Terminating while its definition and objects are being deleted.
	// +optional
	Phase HostedResourcePhase `json:"phase,omitempty"`

	// conditions of the resource. "Established" says whether it is defined,
	// "Scheduled" whether a Store was chosen for it, "StoreReady" whether it has a ready
	// Store, "Ready" whether requests for it are answered; reason and message say
	// why not. "ObjectsReadable" says whether all of its objects can be read, "WithinLimits"
	// whether there is room below its limits. Behind a main cluster "Published" says
	// whether that sends requests for it to annex, and "DefinitionSynced" whether
	// annex follows its definition there, if it has one.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// definitionUID is the UID of the CustomResourceDefinition whose objects the
	// Store holds. Nothing is read from or written to the Store in the name of
	// another definition of the same name.
	// +optional
	DefinitionUID types.UID `json:"definitionUID,omitempty"`

	// takeover is set while the main cluster may be made to send requests for the
	// resource to annex although it has a definition of it too: annex saw that it
	// keeps no objects of the group. Only annex writes it.
	// +optional
	Takeover *HostedResourceTakeover `json:"takeover,omitempty"`

	// objects is the number of objects of the resource, in all namespaces.
	// +optional
	Objects int64 `json:"objects"`

	// bytes is the size of those objects before compression.
	// +optional
	Bytes int64 `json:"bytes"`

	// storedBytes is the size of those objects in the Store.
	// +optional
	StoredBytes int64 `json:"storedBytes"`

	// cachedBytes is the memory that annex uses to serve those objects without
	// asking the Store. Absent while that is not known.
	// +optional
	CachedBytes int64 `json:"cachedBytes,omitempty"`
}
