// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultStoreName is the name of the Store that always exists.
const DefaultStoreName = "default"

// AdoptClusterAnnotation on a Store is the ID of the etcd cluster to adopt with its data.
const AdoptClusterAnnotation = "annex.dev/adopt-cluster"

// Types of conditions of a Store.
const (
	StoreReady         = "Ready"
	StoreUnderPressure = "UnderPressure"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Store is an etcd in which annex stores objects.
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

// StoreSpec is where a Store is and what may be placed on it. Exactly one of Embedded and
// Etcd is set, and which one is immutable.
type StoreSpec struct {
	// Embedded is set for the etcd inside annex.
	Embedded *EmbeddedStore
	// Etcd is set for an external etcd cluster.
	Etcd *EtcdStore
	// Capacity is how much may be placed on the Store.
	Capacity ResourceList
	// Taints repel resources that do not tolerate them.
	Taints []Taint
	// Unschedulable repels all further resources.
	Unschedulable bool
}

// EmbeddedStore is the etcd inside annex.
type EmbeddedStore struct{}

// EtcdStore is an external etcd cluster.
type EtcdStore struct {
	// Endpoints are the client URLs of the members.
	Endpoints []string
	// TLS holds the certificates for https endpoints.
	TLS *EtcdTLS
	// KeyPrefix is the prefix of all keys; immutable.
	KeyPrefix       string
	Defragmentation Defragmentation
}

// Defragmentation is when annex defragments an etcd.
type Defragmentation string

// Policies of defragmentation.
const (
	DefragmentationNever    Defragmentation = "Never"
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

// ResourceName is the name of a quantity that limits and capacities count.
type ResourceName string

// Names of quantities: bytes in the Store, and a number of objects.
const (
	ResourceStorage ResourceName = "storage"
	ResourceObjects ResourceName = "objects"
)

// ResourceList is a quantity for each of a set of names.
type ResourceList map[ResourceName]resource.Quantity

// TaintEffect is the effect of a taint on a resource that does not tolerate it.
type TaintEffect string

// Effects of taints.
const (
	TaintEffectNoSchedule       TaintEffect = "NoSchedule"
	TaintEffectPreferNoSchedule TaintEffect = "PreferNoSchedule"
)

// Taint repels the resources that do not tolerate it.
type Taint struct {
	Key    string
	Value  string
	Effect TaintEffect
}

// StoreStatus is the observed state of a Store. The sizes are those of the whole etcd,
// nil if unknown; Objects counts only the objects of annex.
type StoreStatus struct {
	Conditions []metav1.Condition
	// Size is that of the database on disk, SizeInUse the part that holds data, and Quota
	// the size at which etcd refuses writes.
	Size      *resource.Quantity
	SizeInUse *resource.Quantity
	Quota     *resource.Quantity
	Objects   int64
	// Resources is the number of HostedResources on the Store.
	Resources int32
	// Alarms are those raised in etcd, by etcd's names.
	Alarms []string
	// ClusterID is the ID of the etcd cluster, in hexadecimal; immutable once set.
	ClusterID string
	History   *StoreHistory
	Members   []StoreMember
	// Version is the lowest etcd version of the members.
	Version string
}

// StoreHistory identifies the data of a Store's etcd, up to a revision.
type StoreHistory struct {
	// Epoch is that of the mark in the etcd.
	Epoch string
	// Revision is the highest resource version that clients may have seen.
	Revision int64
	// Checkpoint names a key that annex wrote to the etcd.
	Checkpoint string
	// CheckpointRevision is the etcd revision at which the checkpoint was written.
	CheckpointRevision int64
}

// StoreMember is a member of an etcd cluster.
type StoreMember struct {
	// ID is in hexadecimal.
	ID       string
	Name     string
	Endpoint string
	Version  string
	Leader   bool
}
