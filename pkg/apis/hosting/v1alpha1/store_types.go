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

// AdoptClusterAnnotation on a Store makes annex adopt an etcd cluster with its data although it
// differs from what annex knows: the cluster was restored from a copy or lost data, or its key
// prefix belongs to a Store that no longer exists. The value is the ID of the cluster. annex
// removes the annotation afterwards.
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

	// spec has the location of the store and the limits of what may be placed on it.
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

// StoreSpec has the location of a store and the limits of what may be placed on it. Exactly one of
// embedded and etcd must be set. The choice is immutable, because objects would not move with it.
type StoreSpec struct {
	// embedded selects the etcd inside annex, which stores its files in annex's data directory.
	// +optional
	Embedded *EmbeddedStore `json:"embedded,omitempty" protobuf:"bytes,1,opt,name=embedded"`

	// etcd selects an external etcd cluster.
	// +optional
	Etcd *EtcdStore `json:"etcd,omitempty" protobuf:"bytes,2,opt,name=etcd"`

	// capacity limits what the scheduler places on the store: "storage" (bytes, for example 8Gi)
	// and "objects" (a whole number, for example 500k). By default, neither is limited. It does not
	// limit writes.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty" protobuf:"bytes,3,rep,name=capacity,casttype=ResourceList,castkey=ResourceName"`

	// taints keep the scheduler from placing resources that do not tolerate them. Resources that
	// are placed already stay.
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +optional
	Taints []Taint `json:"taints,omitempty" protobuf:"bytes,4,rep,name=taints"`

	// unschedulable keeps the scheduler from placing further resources on the store. Resources that
	// are placed already stay.
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

	// tls configures the certificates for https endpoints. By default, annex trusts the system's
	// certificate authorities and sends no client certificate.
	// +optional
	TLS *EtcdTLS `json:"tls,omitempty" protobuf:"bytes,2,opt,name=tls"`

	// keyPrefix is the prefix of all keys of annex, so that other programs can share the cluster.
	// It must begin with a slash. It is immutable, because objects would not move with it. Defaults
	// to "/annex".
	// +optional
	KeyPrefix string `json:"keyPrefix,omitempty" protobuf:"bytes,3,opt,name=keyPrefix"`

	// defragmentation selects whether annex makes space in a full etcd. WhenFull compacts the
	// history and defragments the members one after the other; a member serves no requests while it
	// is defragmented. Never, the default, leaves both to the administrator of the etcd.
	// +optional
	Defragmentation Defragmentation `json:"defragmentation,omitempty" protobuf:"bytes,4,opt,name=defragmentation,casttype=Defragmentation"`
}

// Defragmentation selects whether annex defragments the members of an etcd.
// +enum
type Defragmentation string

const (
	// DefragmentationNever leaves a full etcd to its administrator.
	DefragmentationNever Defragmentation = "Never"

	// DefragmentationWhenFull compacts and defragments a full etcd.
	DefragmentationWhenFull Defragmentation = "WhenFull"
)

// EtcdTLS configures the certificates for an etcd cluster.
type EtcdTLS struct {
	// secretRef names the Secret with the PEM files "ca.crt", which verifies the members'
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

// ResourceName is the name of a quantity in limits, requests and capacities.
type ResourceName string

const (
	// ResourceStorage is space in the store, in bytes.
	ResourceStorage ResourceName = "storage"

	// ResourceObjects is a number of objects.
	ResourceObjects ResourceName = "objects"
)

// ResourceList has quantities by their names.
type ResourceList map[ResourceName]resource.Quantity

// TaintEffect is the effect of a taint on resources that do not tolerate it. Resources that are
// placed already stay.
// +enum
type TaintEffect string

const (
	// TaintEffectNoSchedule never places such resources on the store.
	TaintEffectNoSchedule TaintEffect = "NoSchedule"

	// TaintEffectPreferNoSchedule places such resources on the store only if no other store fits.
	TaintEffectPreferNoSchedule TaintEffect = "PreferNoSchedule"
)

// Taint keeps the scheduler from placing resources that do not tolerate it.
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

// StoreStatus is the observed state of a store. The sizes include the data of other programs that
// share the etcd; objects counts only the objects of annex.
type StoreStatus struct {
	// conditions of the store, with the reason and a message. "Ready": it serves reads and
	// writes. "UnderPressure": it is nearly full or slow.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions"`

	// size is the size of the database of the largest member on disk. It is absent until annex
	// connects for the first time.
	// +optional
	DatabaseSize *resource.Quantity `json:"size,omitempty" protobuf:"bytes,2,opt,name=size"`

	// sizeInUse is the part of size that holds data. The rest is free for further writes;
	// defragmentation returns it to the file system.
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

	// alarms are the active alarms of etcd: "NOSPACE" while it refuses writes because its quota is
	// used up, "CORRUPT" if its members have different data.
	// +listType=set
	// +optional
	Alarms []string `json:"alarms,omitempty" protobuf:"bytes,7,rep,name=alarms"`

	// clusterID is the ID of the etcd cluster, in hexadecimal as etcdctl prints it. annex sets it
	// at the first connection and uses no other cluster for this store afterwards.
	// +optional
	ClusterID string `json:"clusterID,omitempty" protobuf:"bytes,8,opt,name=clusterID"`

	// history identifies the data of the etcd. annex does not use an etcd without this history: it
	// lost data, was restored from a copy, or is a copy.
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

	// lastBackupTime is the time at which a client last read a complete backup of the store.
	// It does not show whether the client has kept the backup.
	// +optional
	LastBackupTime *metav1.Time `json:"lastBackupTime,omitempty" protobuf:"bytes,12,opt,name=lastBackupTime"`

	// diskFree is the free space of the volume of annex's data directory. Only a store with the etcd
	// inside annex has it.
	// +optional
	DiskFree *resource.Quantity `json:"diskFree,omitempty" protobuf:"bytes,13,opt,name=diskFree"`
}

// StoreHistory identifies the data of a store's etcd, up to a revision. annex updates it every few
// seconds while the etcd changes.
type StoreHistory struct {
	// epoch is the random value in the ownership mark of the etcd. It changes when annex claims or
	// adopts the store.
	Epoch string `json:"epoch" protobuf:"bytes,1,opt,name=epoch"`

	// revision is the highest resource version that clients may have seen. After an adoption, annex
	// serves higher resource versions.
	// +optional
	Revision int64 `json:"revision,omitempty" protobuf:"varint,2,opt,name=revision"`

	// checkpoint is a key in the etcd, last written by annex at checkpointRevision or later.
	// +optional
	Checkpoint string `json:"checkpoint,omitempty" protobuf:"bytes,3,opt,name=checkpoint"`

	// checkpointRevision is the etcd revision at which annex wrote the checkpoint. An etcd without
	// the checkpoint, or with an earlier one, has different data.
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

	// endpoint is the client URL that annex uses for the member.
	// +optional
	Endpoint string `json:"endpoint,omitempty" protobuf:"bytes,3,opt,name=endpoint"`

	// version is the etcd version of the member. It is empty while the member is unavailable.
	// +optional
	Version string `json:"version,omitempty" protobuf:"bytes,4,opt,name=version"`

	// leader is true for the leader of the cluster.
	// +optional
	Leader bool `json:"leader,omitempty" protobuf:"varint,5,opt,name=leader"`
}
