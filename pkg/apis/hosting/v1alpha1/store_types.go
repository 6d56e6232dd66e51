// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultStoreName is the name of the Store that always exists.
const DefaultStoreName = "default"

// Types of conditions of a Store.
const (
	// StoreReady means that the Store serves reads and writes.
	StoreReady = "Ready"

	// StoreUnderPressure means that the Store is nearly full or slow. The scheduler avoids
	// it.
	StoreUnderPressure = "UnderPressure"
)

// StoreFinalizer keeps a deleted Store until no resource is placed on it.
const StoreFinalizer = "annex.dev/placed-resources"

// AdoptClusterAnnotation on a Store is the ID of the etcd cluster that annex adopts with
// its data: one that was restored from a copy or lost its data, or a prefix whose Store no
// longer exists. annex removes the annotation afterwards.
const AdoptClusterAnnotation = "annex.dev/adopt-cluster"

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Store is an etcd in which annex stores objects: the one inside annex, or an external
// cluster. The Store "default" always exists and cannot be deleted.
type Store struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is where the store is and what may be placed on it.
	// +optional
	Spec StoreSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the observed state of the store. Read-only.
	// +optional
	Status StoreStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StoreList is a list of Stores.
type StoreList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the Stores.
	Items []Store `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// StoreSpec is where a store is and what may be placed on it. Exactly one of embedded and
// etcd is set, and which one is immutable: the objects would not move.
type StoreSpec struct {
	// embedded is set for the etcd inside annex, with its files in annex's data directory.
	// +optional
	Embedded *EmbeddedStore `json:"embedded,omitempty" protobuf:"bytes,1,opt,name=embedded"`

	// etcd is set for an external etcd cluster.
	// +optional
	Etcd *EtcdStore `json:"etcd,omitempty" protobuf:"bytes,2,opt,name=etcd"`

	// capacity is how much may be placed on the store: "storage" (bytes, for example 8Gi)
	// and "objects" (a whole number, for example 500k). What is not listed is not limited.
	// It guides the scheduler and does not limit writes.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty" protobuf:"bytes,3,rep,name=capacity,casttype=ResourceList,castkey=ResourceName"`

	// taints repel resources that do not tolerate them. They guide the scheduler and do not
	// move what is placed already.
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +optional
	Taints []Taint `json:"taints,omitempty" protobuf:"bytes,4,rep,name=taints"`

	// unschedulable repels all further resources. What is placed already stays.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty" protobuf:"varint,5,opt,name=unschedulable"`
}

// EmbeddedStore is the etcd inside annex. Its files and quota are set by flags of annex.
type EmbeddedStore struct{}

// EtcdStore is an external etcd cluster.
type EtcdStore struct {
	// endpoints are the client URLs of the members, at least one: https://host:port,
	// http://host:port or unix:///path/of/socket.
	// +listType=set
	Endpoints []string `json:"endpoints" protobuf:"bytes,1,rep,name=endpoints"`

	// tls holds the certificates for https endpoints. By default, the system's certificate
	// authorities are trusted and no client certificate is sent.
	// +optional
	TLS *EtcdTLS `json:"tls,omitempty" protobuf:"bytes,2,opt,name=tls"`

	// keyPrefix is the prefix of all keys of annex, so that the cluster can be shared. It
	// begins with a slash, defaults to "/annex" and is immutable: the objects would not
	// move.
	// +optional
	KeyPrefix string `json:"keyPrefix,omitempty" protobuf:"bytes,3,opt,name=keyPrefix"`

	// defragmentation is what annex does when the etcd is full. WhenFull compacts the
	// history and defragments every member, one after the other; a member serves no
	// requests meanwhile. Never, the default, leaves that to the administrator of the etcd.
	// +optional
	Defragmentation Defragmentation `json:"defragmentation,omitempty" protobuf:"bytes,4,opt,name=defragmentation,casttype=Defragmentation"`
}

// Defragmentation is when annex defragments the members of an etcd.
// +enum
type Defragmentation string

const (
	// DefragmentationNever leaves a full etcd to its administrator.
	DefragmentationNever Defragmentation = "Never"

	// DefragmentationWhenFull compacts and defragments a full etcd.
	DefragmentationWhenFull Defragmentation = "WhenFull"
)

// EtcdTLS holds the certificates for an etcd cluster.
type EtcdTLS struct {
	// secretRef is the Secret with the PEM files "ca.crt", the authority of the members'
	// certificates, and "tls.crt" and "tls.key", the client certificate and its key.
	SecretRef SecretReference `json:"secretRef" protobuf:"bytes,1,opt,name=secretRef"`
}

// SecretReference names a Secret in any namespace.
type SecretReference struct {
	// namespace of the Secret. Defaults to "annex-system".
	// +optional
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,1,opt,name=namespace"`

	// name of the Secret.
	Name string `json:"name" protobuf:"bytes,2,opt,name=name"`
}

// ResourceName is the name of a quantity that limits and capacities count.
type ResourceName string

const (
	// ResourceStorage is space in the store, in bytes.
	ResourceStorage ResourceName = "storage"

	// ResourceObjects is a number of objects.
	ResourceObjects ResourceName = "objects"
)

// ResourceList is a quantity for each of a set of names.
type ResourceList map[ResourceName]resource.Quantity

// TaintEffect is the effect of a taint on a resource that does not tolerate it. No effect
// moves what is placed already.
// +enum
type TaintEffect string

const (
	// TaintEffectNoSchedule repels resources that do not tolerate the taint.
	TaintEffectNoSchedule TaintEffect = "NoSchedule"

	// TaintEffectPreferNoSchedule repels them while another store fits.
	TaintEffectPreferNoSchedule TaintEffect = "PreferNoSchedule"
)

// Taint repels the resources that do not tolerate it.
type Taint struct {
	// key of the taint, in the form of a label key.
	Key string `json:"key" protobuf:"bytes,1,opt,name=key"`

	// value of the taint, in the form of a label value.
	// +optional
	Value string `json:"value,omitempty" protobuf:"bytes,2,opt,name=value"`

	// effect on resources that do not tolerate the taint: NoSchedule or
	// PreferNoSchedule.
	Effect TaintEffect `json:"effect" protobuf:"bytes,3,opt,name=effect,casttype=TaintEffect"`
}

// StoreStatus is the observed state of a store. The sizes are those of the whole etcd, even
// if it is shared; objects counts only the objects of annex.
type StoreStatus struct {
	// conditions of the store, with the reason and a message. "Ready": it serves reads and
	// writes. "UnderPressure": it is nearly full or slow.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions"`

	// size of the database on disk, that of the largest member. Absent until annex connects
	// for the first time.
	// +optional
	DatabaseSize *resource.Quantity `json:"size,omitempty" protobuf:"bytes,2,opt,name=size"`

	// sizeInUse is the part of size that holds data; the rest is free for further writes,
	// and released by defragmentation.
	// +optional
	SizeInUse *resource.Quantity `json:"sizeInUse,omitempty" protobuf:"bytes,3,opt,name=sizeInUse"`

	// quota is the size at which the store refuses writes.
	// +optional
	Quota *resource.Quantity `json:"quota,omitempty" protobuf:"bytes,4,opt,name=quota"`

	// objects is the number of objects of annex in the store.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,5,opt,name=objects"`

	// resources is the number of HostedResources on the store.
	// +optional
	Resources int32 `json:"resources" protobuf:"varint,6,opt,name=resources"`

	// alarms raised in etcd, by etcd's names: "NOSPACE" while it refuses writes because its
	// quota is used up, "CORRUPT" if its members have different data.
	// +listType=set
	// +optional
	Alarms []string `json:"alarms,omitempty" protobuf:"bytes,7,rep,name=alarms"`

	// clusterID is the ID of the etcd cluster, in hexadecimal as etcdctl prints it. It is
	// set at the first connection. From then on annex uses no other cluster for this store.
	// +optional
	ClusterID string `json:"clusterID,omitempty" protobuf:"bytes,8,opt,name=clusterID"`

	// history identifies the data of the etcd. An etcd without this history is neither read
	// nor written: it lost data, was restored from a copy, or is a copy.
	// +optional
	History *StoreHistory `json:"history,omitempty" protobuf:"bytes,9,opt,name=history"`

	// members are the members of the etcd cluster.
	// +listType=map
	// +listMapKey=id
	// +optional
	Members []StoreMember `json:"members,omitempty" protobuf:"bytes,10,rep,name=members"`

	// version is the lowest etcd version of the members.
	// +optional
	Version string `json:"version,omitempty" protobuf:"bytes,11,opt,name=version"`
}

// StoreHistory identifies the data of a store's etcd, up to a revision. It is updated every
// few seconds while the etcd changes.
type StoreHistory struct {
	// epoch is that of the ownership mark in the etcd: random, and new after the store is
	// claimed or adopted.
	Epoch string `json:"epoch" protobuf:"bytes,1,opt,name=epoch"`

	// revision is the highest resource version that clients may have seen. After an
	// adoption, resource versions are above it.
	// +optional
	Revision int64 `json:"revision,omitempty" protobuf:"varint,2,opt,name=revision"`

	// checkpoint is a key in the etcd, last written by annex at checkpointRevision or later.
	// +optional
	Checkpoint string `json:"checkpoint,omitempty" protobuf:"bytes,3,opt,name=checkpoint"`

	// checkpointRevision is the etcd revision at which the checkpoint was written. An etcd
	// without the checkpoint, or with an earlier one, has different data.
	// +optional
	CheckpointRevision int64 `json:"checkpointRevision,omitempty" protobuf:"varint,4,opt,name=checkpointRevision"`
}

// StoreMember is a member of a store's etcd cluster.
type StoreMember struct {
	// id of the member, in hexadecimal as etcdctl prints it.
	ID string `json:"id" protobuf:"bytes,1,opt,name=id"`

	// name of the member. Empty until the member first starts.
	// +optional
	Name string `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`

	// endpoint that annex uses for the member.
	// +optional
	Endpoint string `json:"endpoint,omitempty" protobuf:"bytes,3,opt,name=endpoint"`

	// version of etcd of the member. Empty while it is unavailable.
	// +optional
	Version string `json:"version,omitempty" protobuf:"bytes,4,opt,name=version"`

	// leader is true for the leader of the cluster.
	// +optional
	Leader bool `json:"leader,omitempty" protobuf:"varint,5,opt,name=leader"`
}
