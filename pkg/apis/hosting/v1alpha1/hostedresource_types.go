// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultSchedulerName is the scheduler of a HostedResource that names none.
const DefaultSchedulerName = "annex-scheduler"

// Types of conditions of a HostedResource.
const (
	// HostedResourceEstablished means that the CustomResourceDefinition has this condition: its
	// names are accepted and the resource is served.
	HostedResourceEstablished = "Established"

	// HostedResourceStoreReady means that the resource has a Store, which exists and is
	// ready.
	HostedResourceStoreReady = "StoreReady"

	// HostedResourceScheduled means that a Store was chosen for the resource.
	HostedResourceScheduled = "Scheduled"

	// HostedResourceObjectsReadable means that every stored object can be read. It is absent until
	// annex finds an unreadable object.
	HostedResourceObjectsReadable = "ObjectsReadable"

	// HostedResourceWithinLimits means that no limit of the resource is reached. It is
	// absent if the resource has no limits.
	HostedResourceWithinLimits = "WithinLimits"

	// HostedResourceCachedAsSpecified means that annex caches the objects as spec.cache specifies.
	// It is absent until the memory budget prevents that.
	HostedResourceCachedAsSpecified = "CachedAsSpecified"

	// HostedResourceRetentionValid means that the fields that spec.retention names exist in the
	// schema. It is absent without spec.retention.
	HostedResourceRetentionValid = "RetentionValid"

	// HostedResourceRetentionSucceeded means that the last run of the retention archived and
	// deleted all objects that were due. It is absent without spec.retention and before the first
	// run.
	HostedResourceRetentionSucceeded = "RetentionSucceeded"

	// HostedResourceReady means that requests for the resource are served. It summarizes the other
	// conditions.
	HostedResourceReady = "Ready"

	// HostedResourcePublished means that the main cluster sends requests for the resource
	// to annex. It is absent in a standalone annex.
	HostedResourcePublished = "Published"

	// HostedResourceDefinitionSynced means that annex syncs the definition of the resource
	// from the main cluster. It is absent for resources defined in annex itself.
	HostedResourceDefinitionSynced = "DefinitionSynced"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=Bind,verb=create,subresource=binding,input=HostedResourceBinding,result=HostedResourceBinding
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResource describes a resource that annex stores: its Store, limits and usage. It has the
// name of the CustomResourceDefinition, "<plural>.<group>". annex creates one for every
// CustomResourceDefinition; create it first to choose the Store in advance.
type HostedResource struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata. The name must be "<plural>.<group>".
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec names the Store of the resource, or guides the scheduler that chooses one.
	// +optional
	Spec HostedResourceSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the observed state of the resource. Read-only.
	// +optional
	Status HostedResourceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceList is a list of HostedResources.
type HostedResourceList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the HostedResources.
	Items []HostedResource `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// HostedResourceSpec names the Store of a resource, or guides the scheduler that chooses one, and
// configures the storage of the objects.
type HostedResourceSpec struct {
	// storeName is the name of the Store of the objects. If it is not set on creation, a scheduler
	// chooses a Store and sets it through the "binding" subresource. Once it is set, only a
	// Migration changes it.
	// +optional
	StoreName string `json:"storeName,omitempty" protobuf:"bytes,1,opt,name=storeName"`

	// storeSelector restricts the scheduler to Stores with these labels. By default, it may choose
	// every Store. It has no effect once storeName is set.
	// +optional
	StoreSelector *metav1.LabelSelector `json:"storeSelector,omitempty" protobuf:"bytes,2,opt,name=storeSelector"`

	// tolerations allow the scheduler to choose Stores with matching taints.
	// +listType=atomic
	// +optional
	Tolerations []Toleration `json:"tolerations,omitempty" protobuf:"bytes,3,rep,name=tolerations"`

	// priority orders the resources that wait for a Store, highest first. Defaults to 0.
	// +optional
	Priority int32 `json:"priority,omitempty" protobuf:"varint,4,opt,name=priority"`

	// requests is the expected usage, for the scheduler: "storage" (bytes, for example 2Gi) and
	// "objects" (a whole number, for example 100k). It does not limit writes.
	// +optional
	Requests ResourceList `json:"requests,omitempty" protobuf:"bytes,5,rep,name=requests,casttype=ResourceList,castkey=ResourceName"`

	// compression of the objects in the Store: None or Zstd. By default, the server chooses. It
	// applies to further writes; annex reads objects of both kinds. Compare status.storedBytes with
	// status.bytes to see the savings.
	// +optional
	Compression Compression `json:"compression,omitempty" protobuf:"bytes,6,opt,name=compression,casttype=Compression"`

	// cache selects how annex keeps the objects of a custom resource in memory. Plain, the default,
	// answers reads fastest; Compressed takes a fraction of the memory, and lists take longer; None
	// reads the Store. A change applies at once. If memory is short, annex caches less; see the
	// condition CachedAsSpecified.
	// +optional
	Cache Cache `json:"cache,omitempty" protobuf:"bytes,7,opt,name=cache,casttype=Cache"`

	// schedulerName is the name of the scheduler that chooses the Store. Defaults to
	// "annex-scheduler".
	// +optional
	SchedulerName string `json:"schedulerName,omitempty" protobuf:"bytes,8,opt,name=schedulerName"`

	// limits is the maximum for all namespaces together: "objects" (a whole number) and "storage"
	// (bytes in the Store). annex rejects writes that would exceed a limit; existing objects
	// remain.
	// +optional
	Limits ResourceList `json:"limits,omitempty" protobuf:"bytes,9,rep,name=limits,casttype=ResourceList,castkey=ResourceName"`

	// namespaceLimits is the maximum for each namespace, with the same keys as limits. It does not
	// apply to cluster-scoped resources.
	// +optional
	NamespaceLimits ResourceList `json:"namespaceLimits,omitempty" protobuf:"bytes,10,rep,name=namespaceLimits,casttype=ResourceList,castkey=ResourceName"`

	// retention deletes objects some time after they are created or finished. By default, annex
	// deletes no objects.
	// +optional
	Retention *Retention `json:"retention,omitempty" protobuf:"bytes,11,opt,name=retention"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HostedResourceBinding binds a HostedResource to a Store. Schedulers post it to the
// "binding" subresource.
type HostedResourceBinding struct {
	metav1.TypeMeta `json:""`

	// metadata must have the name of the HostedResource. A UID or resource version is a
	// precondition.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// storeName is the name of the Store of the objects.
	StoreName string `json:"storeName" protobuf:"bytes,2,opt,name=storeName"`

	// migrationUID is the UID of the Migration that has moved the objects to the Store. It is
	// required to change the Store of a HostedResource.
	// +optional
	MigrationUID types.UID `json:"migrationUID,omitempty" protobuf:"bytes,3,opt,name=migrationUID,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// TolerationOperator compares the values of a toleration and a taint.
// +enum
type TolerationOperator string

const (
	// TolerationOpExists tolerates every value.
	TolerationOpExists TolerationOperator = "Exists"

	// TolerationOpEqual tolerates an equal value.
	TolerationOpEqual TolerationOperator = "Equal"
)

// Toleration allows the scheduler to choose Stores with the taints that it matches.
type Toleration struct {
	// key of the tolerated taints. An empty key with the operator Exists tolerates all taints.
	// +optional
	Key string `json:"key,omitempty" protobuf:"bytes,1,opt,name=key"`

	// operator compares the values: Equal, the default, or Exists, which tolerates every
	// value.
	// +optional
	Operator TolerationOperator `json:"operator,omitempty" protobuf:"bytes,2,opt,name=operator,casttype=TolerationOperator"`

	// value of the tolerated taints. It must be empty if the operator is Exists.
	// +optional
	Value string `json:"value,omitempty" protobuf:"bytes,3,opt,name=value"`

	// effect of the tolerated taints: NoSchedule or PreferNoSchedule. By default, both are
	// tolerated.
	// +optional
	Effect TaintEffect `json:"effect,omitempty" protobuf:"bytes,4,opt,name=effect,casttype=TaintEffect"`
}

// Compression is the algorithm that compresses objects in a Store.
// +enum
type Compression string

const (
	// CompressionNone stores objects uncompressed.
	CompressionNone Compression = "None"

	// CompressionZstd compresses objects with Zstandard.
	CompressionZstd Compression = "Zstd"
)

// Cache selects how annex keeps the objects of a resource in memory.
// +enum
type Cache string

const (
	// CachePlain keeps objects as the JSON that clients read.
	CachePlain Cache = "Plain"

	// CacheCompressed keeps objects compressed with Zstandard.
	CacheCompressed Cache = "Compressed"

	// CacheNone keeps no objects. The Store serves every read and watch.
	CacheNone Cache = "None"
)

// HostedResourcePhase summarizes the lifecycle of a resource.
// +enum
type HostedResourcePhase string

const (
	// HostedResourcePending means that the resource is not served, because it is not defined or has
	// no Store.
	HostedResourcePending HostedResourcePhase = "Pending"

	// HostedResourceHosted means that the resource is defined and served.
	HostedResourceHosted HostedResourcePhase = "Hosted"

	// HostedResourceTerminating means that the definition is being deleted, with all objects.
	HostedResourceTerminating HostedResourcePhase = "Terminating"
)

// HostedResourceTakeover identifies the definition in annex that may be published although the main
// cluster has one with the same name.
type HostedResourceTakeover struct {
	// definitionUID is the UID of the CustomResourceDefinition in annex.
	DefinitionUID types.UID `json:"definitionUID" protobuf:"bytes,1,opt,name=definitionUID,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// definitionGeneration is the only generation of the definition that may be published. Another
	// generation could serve versions whose objects the main cluster stores.
	DefinitionGeneration int64 `json:"definitionGeneration" protobuf:"varint,2,opt,name=definitionGeneration"`
}

// HostedResourceStatus is the observed state of a resource.
type HostedResourceStatus struct {
	// phase is Pending while the resource is not defined or has no Store, Hosted while it is
	// served, and Terminating while its definition and objects are being deleted.
	// +optional
	Phase HostedResourcePhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=HostedResourcePhase"`

	// conditions of the resource, with the reason and a message:
	// "Established": it is defined and its names are accepted.
	// "Scheduled": a Store was chosen.
	// "StoreReady": the Store exists and is ready.
	// "Ready": requests are served.
	// "ObjectsReadable": all stored objects can be read.
	// "WithinLimits": no limit is reached.
	// "CachedAsSpecified": the memory budget allows spec.cache.
	// "RetentionValid": the schema has the fields that spec.retention names.
	// "RetentionSucceeded": the last run of the retention deleted all that was due.
	// "Published": the main cluster sends requests to annex.
	// "DefinitionSynced": annex syncs the definition from the main cluster.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,2,rep,name=conditions"`

	// definitionUID is the UID of the CustomResourceDefinition of the stored objects. A definition
	// with the same name and another UID can neither read nor write them.
	// +optional
	DefinitionUID types.UID `json:"definitionUID,omitempty" protobuf:"bytes,3,opt,name=definitionUID,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// takeover allows annex to publish the resource although the main cluster has a definition of
	// it. annex sets it for a Migration that has moved the group, or is about to.
	// +optional
	Takeover *HostedResourceTakeover `json:"takeover,omitempty" protobuf:"bytes,4,opt,name=takeover"`

	// objects is the number of objects in all namespaces.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,5,opt,name=objects"`

	// bytes is the size of all objects before compression.
	// +optional
	Bytes int64 `json:"bytes" protobuf:"varint,6,opt,name=bytes"`

	// storedBytes is the size of all objects in the Store.
	// +optional
	StoredBytes int64 `json:"storedBytes" protobuf:"varint,7,opt,name=storedBytes"`

	// cachedBytes is the memory that one replica uses to cache all objects and their history. It is
	// absent if nothing is cached or the size is unknown.
	// +optional
	CachedBytes int64 `json:"cachedBytes,omitempty" protobuf:"varint,8,opt,name=cachedBytes"`

	// retention reports the results of spec.retention. It is absent without spec.retention.
	// +optional
	Retention *RetentionStatus `json:"retention,omitempty" protobuf:"bytes,9,opt,name=retention"`
}
