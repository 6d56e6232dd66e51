// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultStoreName is the name of the Store that always exists.
const DefaultStoreName = "default"

// AdoptClusterAnnotation on a Store names the etcd cluster that its data are in from
// now on.
const AdoptClusterAnnotation = "annex.dev/adopt-cluster"

// StoreReady is the type of the condition that says whether a Store answers
// reads and writes.
const StoreReady = "Ready"

// StoreUnderPressure is the type of the condition that says whether a Store is
// about to refuse writes, or answers slowly.
const StoreUnderPressure = "UnderPressure"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Store is a place where annex keeps objects.
type Store struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   StoreSpec
	Status StoreStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StoreList is a list of Stores.
type StoreList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Store
}

// StoreSpec says where a store is and what may be placed on it. Exactly one of
// Embedded and Etcd is set, and which one never changes.
type StoreSpec struct {
	// Embedded is set for the etcd that runs inside annex.
	Embedded *EmbeddedStore
	// Etcd is set for an etcd cluster that runs outside annex.
	Etcd *EtcdStore
	// Capacity is how much may be placed on the store.
	Capacity ResourceList
	// Taints keep resources off the store, except those that tolerate them.
	Taints []Taint
	// Unschedulable keeps every further resource off the store.
	Unschedulable bool
}

// EmbeddedStore is the etcd that runs inside annex.
type EmbeddedStore struct{}

// EtcdStore is an etcd cluster that runs outside annex.
type EtcdStore struct {
	// Endpoints are the client URLs of the cluster's members.
	Endpoints []string
	// TLS holds the certificates for https endpoints.
	TLS *EtcdTLS
	// KeyPrefix is put before every key, and never changes.
	KeyPrefix string
	// Defragmentation says whether annex makes room when the etcd is full.
	Defragmentation Defragmentation
}

// Defragmentation says when annex defragments the members of an etcd.
type Defragmentation string

const (
	// DefragmentationNever leaves an etcd that is full to those who run it.
	DefragmentationNever Defragmentation = "Never"
	// DefragmentationWhenFull makes room in an etcd that is full.
	DefragmentationWhenFull Defragmentation = "WhenFull"
)

// EtcdTLS holds the certificates for an etcd cluster.
type EtcdTLS struct {
	// SecretRef names the Secret with ca.crt, tls.crt and tls.key.
	SecretRef SecretReference
}

// SecretReference names a Secret in any namespace.
type SecretReference struct {
	Namespace string
	Name      string
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
	Key    string
	Value  string
	Effect TaintEffect
}

// StoreStatus is what annex last saw of a store. The sizes are those of the
// whole etcd; Objects counts only what annex keeps there.
type StoreStatus struct {
	Conditions []metav1.Condition
	// Size is the space that the database takes on disk, nil while unknown.
	Size *resource.Quantity
	// SizeInUse is the part of Size that holds data, nil while unknown.
	SizeInUse *resource.Quantity
	// Quota is the size at which the store stops taking writes, nil while unknown.
	Quota *resource.Quantity
	// Objects is the number of objects that annex keeps in the store.
	Objects int64
	// Resources is the number of HostedResources that are placed on the store.
	Resources int32
	// Alarms that etcd has raised, as etcd names them.
	Alarms []string
	// ClusterID is that of the etcd cluster, in hexadecimal; set once.
	ClusterID string
	// History is how far annex knows what happened in the etcd.
	History *StoreHistory
	// Members are the members of the etcd cluster.
	Members []StoreMember
	// Version of etcd that the store runs, the lowest of its members.
	Version string
}

// StoreHistory is how far annex knows what happened in a store's etcd.
type StoreHistory struct {
	// Epoch is the one that the mark in the etcd has.
	Epoch string
	// Revision is the highest resource version that clients may have seen.
	Revision int64
	// Checkpoint names a key that annex wrote to the etcd.
	Checkpoint string
	// CheckpointRevision is the revision of etcd at which the checkpoint was written.
	CheckpointRevision int64
}

// StoreMember is one member of a store's etcd cluster.
type StoreMember struct {
	// ID of the member, in hexadecimal.
	ID       string
	Name     string
	Endpoint string
	Version  string
	Leader   bool
}
