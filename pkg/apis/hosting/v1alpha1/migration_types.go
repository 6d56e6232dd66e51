// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MigrationComplete is the condition of a Migration that ended well. While it is False, its
// reason and message say what the Migration does, what it waits for, or why it failed.
const MigrationComplete = "Complete"

// MigrationRetrying is the reason of the condition Complete of a Migration that meets an error,
// for example because a Store is unavailable. It continues once that has passed.
const MigrationRetrying = "Retrying"

// MigrationFinalizer keeps a deleted Migration until it is undone or complete, and the
// HostedResource of an unfinished Migration.
const MigrationFinalizer = "annex.dev/migration"

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Migration moves the objects of a resource to another Store, or those of an API group between
// the main cluster and annex, while clients use them. To cancel it, delete it: before the
// switch, that undoes it. A deleted Migration that switched already is completed.
type Migration struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what is moved where.
	// +optional
	Spec MigrationSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the observed state of the migration. Read-only.
	// +optional
	Status MigrationStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MigrationList is a list of Migrations.
type MigrationList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the Migrations.
	Items []Migration `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// MigrationSpec names what is moved, and where. It is immutable, except confirmed, exemptWebhooks and
// ttlSecondsAfterFinished.
type MigrationSpec struct {
	// resource is the resource to move to another Store, "<plural>.<group>": the name of its
	// HostedResource. Exactly one of resource and group is set.
	// +optional
	Resource string `json:"resource,omitempty" protobuf:"bytes,1,opt,name=resource"`

	// storeName is the Store to move to. The taints and the capacity of that Store and the
	// storeSelector of the HostedResource apply as for a new resource; spec.unschedulable
	// does too. For a group it is optional: by default, the scheduler chooses.
	// +optional
	StoreName string `json:"storeName,omitempty" protobuf:"bytes,2,opt,name=storeName"`

	// switch is when requests go to the new Store: Automatic, the default, once all objects
	// are copied and verified, or Manual, once confirmed is true as well.
	// +optional
	Switch MigrationSwitch `json:"switch,omitempty" protobuf:"bytes,3,opt,name=switch,casttype=MigrationSwitch"`

	// confirmed allows a Manual switch.
	// +optional
	Confirmed bool `json:"confirmed,omitempty" protobuf:"varint,4,opt,name=confirmed"`

	// notBefore is the earliest time of the switch.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty" protobuf:"bytes,5,opt,name=notBefore"`

	// objectsPerSecond limits the rate at which existing objects are copied. By default, it
	// is not limited.
	// +optional
	ObjectsPerSecond int32 `json:"objectsPerSecond,omitempty" protobuf:"varint,6,opt,name=objectsPerSecond"`

	// ttlSecondsAfterFinished is after how many seconds a finished Migration is deleted. By
	// default, it is kept.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty" protobuf:"varint,7,opt,name=ttlSecondsAfterFinished"`

	// group is the API group to move, with all of its resources.
	// +optional
	Group string `json:"group,omitempty" protobuf:"bytes,8,opt,name=group"`

	// operation is what is done with a group: Move, the default, from the main cluster into
	// annex; Rollback, back to the main cluster, with everything written since; or Finalize,
	// deletes the objects that the main cluster still stores after Move, without running
	// their finalizers. Finalize also waits for confirmed.
	// +optional
	Operation MigrationOperation `json:"operation,omitempty" protobuf:"bytes,9,opt,name=operation,casttype=MigrationOperation"`

	// exemptWebhooks exempts annex from the main cluster's webhooks and admission policies
	// while a Rollback writes the objects of the group there: annex adds a match condition
	// that excludes its own requests for the group, and removes it at the end. With Move it
	// is for the Rollback that annex creates if clients do not reach the group.
	// +optional
	ExemptWebhooks bool `json:"exemptWebhooks,omitempty" protobuf:"varint,10,opt,name=exemptWebhooks"`
}

// MigrationOperation is what a Migration does with a group.
// +enum
type MigrationOperation string

const (
	// MigrationMove moves a group from the main cluster into annex. The main cluster keeps its
	// objects as they were.
	MigrationMove MigrationOperation = "Move"

	// MigrationRollback moves a group from annex back to the main cluster.
	MigrationRollback MigrationOperation = "Rollback"

	// MigrationFinalize deletes the objects that the main cluster kept.
	MigrationFinalize MigrationOperation = "Finalize"
)

// MigrationSwitch is what triggers the switch of a Migration.
// +enum
type MigrationSwitch string

const (
	// MigrationSwitchAutomatic switches once all objects are copied and verified.
	MigrationSwitchAutomatic MigrationSwitch = "Automatic"

	// MigrationSwitchManual also waits for spec.confirmed.
	MigrationSwitchManual MigrationSwitch = "Manual"
)

// MigrationPhase is a step of a Migration. The first ones follow each other in this order.
// +enum
type MigrationPhase string

const (
	// MigrationPending is a Migration that has written nothing yet.
	MigrationPending MigrationPhase = "Pending"

	// MigrationCopying copies the existing objects to the new Store.
	MigrationCopying MigrationPhase = "Copying"

	// MigrationFollowing copies the writes since then.
	MigrationFollowing MigrationPhase = "Following"

	// MigrationVerifying compares the objects of both Stores.
	MigrationVerifying MigrationPhase = "Verifying"

	// MigrationSwitching makes requests wait, copies the last writes and changes the Store.
	MigrationSwitching MigrationPhase = "Switching"

	// MigrationObserving checks that clients reach a moved group. If they do not, it is rolled
	// back.
	MigrationObserving MigrationPhase = "Observing"

	// MigrationCleaning deletes the objects in the previous Store, or with Finalize those in
	// the main cluster. The new one serves requests.
	MigrationCleaning MigrationPhase = "Cleaning"

	// MigrationCompleted is a Migration that ended well.
	MigrationCompleted MigrationPhase = "Completed"

	// MigrationFailed is a Migration that was refused or undone. The resource is on its
	// previous Store.
	MigrationFailed MigrationPhase = "Failed"

	// MigrationCanceled is a Migration that was deleted and undone.
	MigrationCanceled MigrationPhase = "Canceled"
)

// MigrationStatus is the observed state of a migration.
type MigrationStatus struct {
	// phase is the current step: Pending, Copying, Following, Verifying, Switching, Observing,
	// Cleaning; or the result: Completed, Failed, Canceled.
	// +optional
	Phase MigrationPhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=MigrationPhase"`

	// conditions of the migration. "Complete": it ended well; until then, reason and message
	// say what it does, what it waits for, or why it failed.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,2,rep,name=conditions"`

	// fromStoreName is the Store that the resource is moved from. It is empty until the
	// migration begins, and for a group.
	// +optional
	FromStoreName string `json:"fromStoreName,omitempty" protobuf:"bytes,3,opt,name=fromStoreName"`

	// objects is the number of objects when the copy began.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,4,opt,name=objects"`

	// copiedObjects is how many of them are copied.
	// +optional
	CopiedObjects int64 `json:"copiedObjects" protobuf:"varint,5,opt,name=copiedObjects"`

	// copiedBytes is the size of the copied objects before compression.
	// +optional
	CopiedBytes int64 `json:"copiedBytes" protobuf:"varint,6,opt,name=copiedBytes"`

	// lag is the number of revisions of the previous Store that are not copied yet. Absent
	// outside of the phase Following.
	// +optional
	Lag *int64 `json:"lag,omitempty" protobuf:"varint,7,opt,name=lag"`

	// startTime is when the migration began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty" protobuf:"bytes,8,opt,name=startTime"`

	// completionTime is when it ended, well or not.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty" protobuf:"bytes,9,opt,name=completionTime"`

	// switchTime is when the other side began to serve a group. From then on a Move is not
	// undone by deleting the Migration.
	// +optional
	SwitchTime *metav1.Time `json:"switchTime,omitempty" protobuf:"bytes,10,opt,name=switchTime"`

	// resources is the progress of each resource of a group.
	// +listType=map
	// +listMapKey=name
	// +optional
	Resources []MigrationResourceStatus `json:"resources,omitempty" protobuf:"bytes,11,rep,name=resources"`

	// holder is the attempt that runs the migration. A replica that takes over replaces it; the
	// attempts before can write nothing any more.
	// +optional
	Holder string `json:"holder,omitempty" protobuf:"bytes,12,opt,name=holder"`

	// lastResourceVersion is the highest resource version that annex has served of a group that
	// is rolled back. The main cluster serves the group once its own are higher.
	// +optional
	LastResourceVersion int64 `json:"lastResourceVersion,omitempty" protobuf:"varint,13,opt,name=lastResourceVersion"`

	// progress of the phase. Absent in phases that count nothing.
	// +optional
	Progress *MigrationProgress `json:"progress,omitempty" protobuf:"bytes,14,opt,name=progress"`
}

// MigrationProgress counts the work of a phase.
type MigrationProgress struct {
	// done is the number of objects that are copied, compared or deleted. In the phase Following of a
	// Rollback it is the number of revisions by which the main cluster's was raised.
	Done int64 `json:"done" protobuf:"varint,1,opt,name=done"`

	// total is the number of all of them.
	Total int64 `json:"total" protobuf:"varint,2,opt,name=total"`
}

// MigrationResourceStatus is the progress of a resource of a group.
type MigrationResourceStatus struct {
	// name of the resource, "<plural>.<group>".
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// objects is the number of objects when the copy began.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,2,opt,name=objects"`

	// copiedObjects is how many of them are copied, or with Finalize deleted.
	// +optional
	CopiedObjects int64 `json:"copiedObjects" protobuf:"varint,3,opt,name=copiedObjects"`

	// copiedBytes is the size of the copied objects before compression.
	// +optional
	CopiedBytes int64 `json:"copiedBytes" protobuf:"varint,4,opt,name=copiedBytes"`
}

// Finished reports whether a Migration ended, well or not.
func (p MigrationPhase) Finished() bool {
	return p == MigrationCompleted || p == MigrationFailed || p == MigrationCanceled
}

// Moves reports whether an unfinished Migration moves a group into annex, or Rollback moves it
// back.
func (m *Migration) Moves(group string, operation MigrationOperation) bool {
	return m.Spec.Group == group && m.Spec.Operation == operation && !m.Status.Phase.Finished()
}

// Uses reports whether a Migration moves a resource from or to a Store.
func (m *Migration) Uses(store string) bool {
	return !m.Status.Phase.Finished() && (m.Spec.StoreName == store || m.Status.FromStoreName == store)
}
