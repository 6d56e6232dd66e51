// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultStoreName is the name of the Store that always exists.
const DefaultStoreName = "default"

// StoreReady is the type of the condition that says whether a Store answers
// reads and writes.
const StoreReady = "Ready"

// StoreUnderPressure is the type of the condition that says whether a Store is
// about to refuse writes, or answers slowly. Resources are placed elsewhere then.
const StoreUnderPressure = "UnderPressure"

// StoreFinalizer keeps a Store that is being deleted until nothing is placed on it.
const StoreFinalizer = "annex.dev/placed-resources"

// AdoptClusterAnnotation on a Store makes annex take the etcd cluster with this ID, with
// the data that it has, for that of the Store from now on. It is for an etcd that was
// restored from a copy or lost its data, and for a prefix whose Store no longer exists.
// annex removes it once that is done.
const AdoptClusterAnnotation = "annex.dev/adopt-cluster"

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Store is a place where annex keeps objects: the etcd that runs inside annex,
// or an etcd cluster of your own. The Store named "default" always exists and
// cannot be deleted.
type Store struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where the store is and what may be placed on it.
	// +optional
	Spec StoreSpec `json:"spec,omitempty"`

	// status is what annex last saw of the store. Read-only.
	// +optional
	Status StoreStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StoreList is a list of Stores.
type StoreList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Stores.
	Items []Store `json:"items"`
}

// StoreSpec says where a store is and what may be placed on it. Exactly one of
// embedded and etcd is set, and which one never changes: the objects would not
// follow.
type StoreSpec struct {
	// embedded is set if the store is the etcd that runs inside annex and keeps
	// its files in annex's data directory.
	// +optional
	Embedded *EmbeddedStore `json:"embedded,omitempty"`

	// etcd is set if the store is an etcd cluster that runs outside annex.
	// +optional
	Etcd *EtcdStore `json:"etcd,omitempty"`

	// capacity is how much may be placed on the store. The resources
	// "storage" (bytes, for example 8Gi) and "objects" (a whole number, for
	// example 500k) are known. A resource that is not listed is not limited.
	// It guides placement and is not a limit on writes.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty"`

	// taints keep resources off the store, except those that tolerate them.
	// They guide placement and never move what is already there.
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +optional
	Taints []Taint `json:"taints,omitempty"`

	// unschedulable keeps every further resource off the store. What is there
	// already stays and is served.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
}

// EmbeddedStore is the etcd that runs inside annex. It has no settings here:
// the command line of annex says where its files are and how large it may grow.
type EmbeddedStore struct{}

// EtcdStore is an etcd cluster that runs outside annex.
type EtcdStore struct {
	// endpoints are the client URLs of the cluster's members, at least one:
	// https://host:port, http://host:port or unix:///path/of/socket.
	// +listType=set
	Endpoints []string `json:"endpoints"`

	// tls holds the certificates for https endpoints. Without it the system's
	// certificate authorities are trusted and no client certificate is shown.
	// +optional
	TLS *EtcdTLS `json:"tls,omitempty"`

	// keyPrefix is put before every key that annex writes to the cluster, so
	// that several users can share it. It begins with a slash, defaults to
	// "/annex" and never changes: the objects would not follow.
	// +optional
	KeyPrefix string `json:"keyPrefix,omitempty"`

	// defragmentation says whether annex makes room when etcd refuses writes
	// because it is full: WhenFull has it remove history and defragment every
	// member, one after the other, which then answers nobody. Never, the
	// default, leaves that to those who run the etcd.
	// +optional
	Defragmentation Defragmentation `json:"defragmentation,omitempty"`
}

// Defragmentation says when annex defragments the members of an etcd.
// +enum
type Defragmentation string

const (
	// DefragmentationNever leaves an etcd that is full to those who run it.
	DefragmentationNever Defragmentation = "Never"

	// DefragmentationWhenFull makes room in an etcd that is full.
	DefragmentationWhenFull Defragmentation = "WhenFull"
)

// EtcdTLS holds the certificates for an etcd cluster.
type EtcdTLS struct {
	// secretRef names the Secret with the certificates, each as PEM:
	// "ca.crt" is the authority that signed the members' certificates,
	// "tls.crt" and "tls.key" are the client certificate and its key.
	SecretRef SecretReference `json:"secretRef"`
}

// SecretReference names a Secret in any namespace.
type SecretReference struct {
	// namespace of the Secret. Defaults to "annex-system".
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the Secret.
	Name string `json:"name"`
}

// ResourceName is the name of something that a store has a limited amount of.
type ResourceName string

const (
	// ResourceStorage is space in the store, in bytes.
	ResourceStorage ResourceName = "storage"

	// ResourceObjects is a number of objects.
	ResourceObjects ResourceName = "objects"
)

// ResourceList is an amount for each of a set of resources.
type ResourceList map[ResourceName]resource.Quantity

// TaintEffect is what a taint does to a resource that does not tolerate it.
// There is no effect that moves what is already placed: a move is a step of its
// own.
// +enum
type TaintEffect string

const (
	// TaintEffectNoSchedule keeps resources that do not tolerate the taint off the store.
	TaintEffectNoSchedule TaintEffect = "NoSchedule"

	// TaintEffectPreferNoSchedule keeps resources that do not tolerate the taint
	// off the store while another store would do.
	TaintEffectPreferNoSchedule TaintEffect = "PreferNoSchedule"
)

// Taint keeps resources off a store, except those that tolerate it.
type Taint struct {
	// key of the taint, in the form of a label key.
	Key string `json:"key"`

	// value of the taint, in the form of a label value.
	// +optional
	Value string `json:"value,omitempty"`

	// effect on resources that do not tolerate the taint: NoSchedule or
	// PreferNoSchedule.
	Effect TaintEffect `json:"effect"`
}

// StoreStatus is what annex last saw of a store. The sizes are those of the
// whole etcd, whoever else uses it; objects counts only what annex keeps there.
type StoreStatus struct {
	// conditions of the store. "Ready" is True while the store answers reads
	// and writes, "UnderPressure" while it is about to refuse writes or answers
	// slowly; reason and message say why.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// size is the space that the store's database takes on disk, that of the
	// largest member. Absent until the store was reached once.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// sizeInUse is the part of size that holds data; the rest is free for
	// further writes, and given back by defragmentation.
	// +optional
	SizeInUse *resource.Quantity `json:"sizeInUse,omitempty"`

	// quota is the size at which the store stops taking writes.
	// +optional
	Quota *resource.Quantity `json:"quota,omitempty"`

	// objects is the number of objects that annex keeps in the store.
	// +optional
	Objects int64 `json:"objects"`

	// resources is the number of HostedResources that are placed on the store.
	// +optional
	Resources int32 `json:"resources"`

	// alarms that etcd has raised, as etcd names them: "NOSPACE" while it refuses
	// writes because its quota is used up, "CORRUPT" if its members disagree.
	// +listType=set
	// +optional
	Alarms []string `json:"alarms,omitempty"`

	// clusterID is that of the etcd cluster, in hexadecimal as etcd's own tools
	// print it. It is written when the store is reached for the first time. From
	// then on annex neither reads from nor writes to any other cluster in the name
	// of this store.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// history is how far annex knows what happened in the etcd. An etcd that does
	// not have this history is neither read nor written: it lost data, was restored
	// from a copy, or is a copy itself.
	// +optional
	History *StoreHistory `json:"history,omitempty"`

	// members are the members of the etcd cluster.
	// +listType=map
	// +listMapKey=id
	// +optional
	Members []StoreMember `json:"members,omitempty"`

	// version of etcd that the store runs, the lowest of its members.
	// +optional
	Version string `json:"version,omitempty"`
}

// StoreHistory is how far annex knows what happened in a store's etcd. It is
// written every few seconds while something happens there.
type StoreHistory struct {
	// epoch is the one that the mark in the etcd has. It is random, and another
	// one after the store was claimed or adopted.
	Epoch string `json:"epoch"`

	// revision is the highest resource version that clients may have seen.
	// After an adoption resource versions are above it.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// checkpoint names a key that annex wrote to the etcd, for the last time at
	// checkpointRevision or later.
	// +optional
	Checkpoint string `json:"checkpoint,omitempty"`

	// checkpointRevision is the revision of etcd at which the checkpoint was
	// written. An etcd that has it earlier, or not at all, is another one.
	// +optional
	CheckpointRevision int64 `json:"checkpointRevision,omitempty"`
}

// StoreMember is one member of a store's etcd cluster.
type StoreMember struct {
	// id of the member, in hexadecimal as etcd's own tools print it.
	ID string `json:"id"`

	// name of the member. Empty until the member has started for the first time.
	// +optional
	Name string `json:"name,omitempty"`

	// endpoint at which annex reaches the member.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// version of etcd that the member runs. Empty while it does not answer.
	// +optional
	Version string `json:"version,omitempty"`

	// leader is true for the member that leads the cluster.
	// +optional
	Leader bool `json:"leader,omitempty"`
}
