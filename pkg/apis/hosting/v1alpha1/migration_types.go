// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MigrationComplete means that the Migration succeeded. While it is False, its reason and message
// report the current work, the cause of a wait, or the failure.
const MigrationComplete = "Complete"

// MigrationRetrying is the reason of the condition Complete while a Migration retries after an
// error, for example because a Store is unavailable.
const MigrationRetrying = "Retrying"

// MigrationFinalizer keeps a deleted Migration until it is undone or complete. It also keeps the
// HostedResource of an unfinished Migration.
const MigrationFinalizer = "annex.dev/migration"

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Migration moves the objects of a resource to another Store, or the objects of an API group
// between the main cluster and annex, while clients use them. Deleting a Migration cancels it:
// before the switch annex undoes it, after the switch annex completes it.
type Migration struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec has the source and the target of the move.
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

// MigrationSpec has the source and the target of a move. It is immutable, except confirmed,
// exemptWebhooks and ttlSecondsAfterFinished.
type MigrationSpec struct {
	// resource is the resource to move to another Store, by the name of its HostedResource,
	// "<plural>.<group>". Exactly one of resource and group must be set.
	// +optional
	Resource string `json:"resource,omitempty" protobuf:"bytes,1,opt,name=resource"`

	// storeName is the Store to move to. It is required for a resource. For a group, the scheduler
	// chooses a Store by default. The storeSelector and tolerations of the HostedResource and the
	// taints, capacity and unschedulable of the Store apply as for a new resource.
	// +optional
	StoreName string `json:"storeName,omitempty" protobuf:"bytes,2,opt,name=storeName"`

	// switch selects the time from which the new Store serves requests. Automatic, the default,
	// switches once all objects are copied and verified; Manual also waits until confirmed is true.
	// +optional
	Switch MigrationSwitch `json:"switch,omitempty" protobuf:"bytes,3,opt,name=switch,casttype=MigrationSwitch"`

	// confirmed allows a Manual switch, and Finalize.
	// +optional
	Confirmed bool `json:"confirmed,omitempty" protobuf:"varint,4,opt,name=confirmed"`

	// notBefore is the earliest time of the switch.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty" protobuf:"bytes,5,opt,name=notBefore"`

	// objectsPerSecond limits the rate at which existing objects are copied. By default, it
	// is not limited.
	// +optional
	ObjectsPerSecond int32 `json:"objectsPerSecond,omitempty" protobuf:"varint,6,opt,name=objectsPerSecond"`

	// ttlSecondsAfterFinished is the number of seconds after which annex deletes the finished
	// Migration. By default, it is kept.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty" protobuf:"varint,7,opt,name=ttlSecondsAfterFinished"`

	// group is the API group to move, with all of its resources.
	// +optional
	Group string `json:"group,omitempty" protobuf:"bytes,8,opt,name=group"`

	// operation selects what a Migration does with a group. Move, the default, moves it from the
	// main cluster into annex; Rollback moves it back to the main cluster, with all writes since;
	// Finalize deletes the objects that the main cluster still stores after a Move, without running
	// their finalizers. Finalize waits until confirmed is true.
	// +optional
	Operation MigrationOperation `json:"operation,omitempty" protobuf:"bytes,9,opt,name=operation,casttype=MigrationOperation"`

	// exemptWebhooks exempts annex from the main cluster's webhooks and admission policies while a
	// Rollback writes the objects of the group there: annex adds a match condition that excludes
	// its own requests for the group, and removes it at the end. With Move, it applies to the
	// Rollback that annex creates if clients cannot reach the group.
	// +optional
	ExemptWebhooks bool `json:"exemptWebhooks,omitempty" protobuf:"varint,10,opt,name=exemptWebhooks"`
}

// MigrationOperation selects what a Migration does with a group.
// +enum
type MigrationOperation string

const (
	// MigrationMove moves a group from the main cluster into annex. The main cluster keeps its
	// objects unchanged.
	MigrationMove MigrationOperation = "Move"

	// MigrationRollback moves a group from annex back to the main cluster.
	MigrationRollback MigrationOperation = "Rollback"

	// MigrationFinalize deletes the objects that the main cluster kept.
	MigrationFinalize MigrationOperation = "Finalize"
)

// MigrationSwitch selects the trigger of the switch of a Migration.
// +enum
type MigrationSwitch string

const (
	// MigrationSwitchAutomatic switches once all objects are copied and verified.
	MigrationSwitchAutomatic MigrationSwitch = "Automatic"

	// MigrationSwitchManual also waits for spec.confirmed.
	MigrationSwitchManual MigrationSwitch = "Manual"
)

// MigrationPhase is a step or the result of a Migration. The steps have this order.
// +enum
type MigrationPhase string

const (
	// MigrationPending means that the Migration has written nothing yet.
	MigrationPending MigrationPhase = "Pending"

	// MigrationCopying copies the existing objects to the new Store.
	MigrationCopying MigrationPhase = "Copying"

	// MigrationFollowing copies the writes since the copy began.
	MigrationFollowing MigrationPhase = "Following"

	// MigrationVerifying compares the objects of both Stores.
	MigrationVerifying MigrationPhase = "Verifying"

	// MigrationSwitching makes requests wait, copies the last writes and changes the Store.
	MigrationSwitching MigrationPhase = "Switching"

	// MigrationObserving checks that clients reach a moved group. If they cannot, annex rolls it
	// back.
	MigrationObserving MigrationPhase = "Observing"

	// MigrationCleaning deletes the objects in the previous Store while the new one serves
	// requests. With Finalize, it deletes the objects in the main cluster.
	MigrationCleaning MigrationPhase = "Cleaning"

	// MigrationCompleted means that the Migration succeeded.
	MigrationCompleted MigrationPhase = "Completed"

	// MigrationFailed means that annex refused or undid the Migration. The resource is on its
	// previous Store.
	MigrationFailed MigrationPhase = "Failed"

	// MigrationCanceled means that the Migration was deleted and undone.
	MigrationCanceled MigrationPhase = "Canceled"
)

// MigrationStatus is the observed state of a migration.
type MigrationStatus struct {
	// phase is the current step: Pending, Copying, Following, Verifying, Switching, Observing or
	// Cleaning; or the result: Completed, Failed or Canceled.
	// +optional
	Phase MigrationPhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=MigrationPhase"`

	// conditions of the migration. "Complete": it succeeded; until then, reason and message report
	// the current work, the cause of a wait, or the failure.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,2,rep,name=conditions"`

	// fromStoreName is the previous Store of the resource. It is empty until the migration begins,
	// and for a group.
	// +optional
	FromStoreName string `json:"fromStoreName,omitempty" protobuf:"bytes,3,opt,name=fromStoreName"`

	// objects is the number of objects when the copy began.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,4,opt,name=objects"`

	// copiedObjects is the number of those objects that are copied.
	// +optional
	CopiedObjects int64 `json:"copiedObjects" protobuf:"varint,5,opt,name=copiedObjects"`

	// copiedBytes is the size of the copied objects before compression.
	// +optional
	CopiedBytes int64 `json:"copiedBytes" protobuf:"varint,6,opt,name=copiedBytes"`

	// lag is the number of revisions of the previous Store that are not copied yet. It is set only
	// in the phase Following.
	// +optional
	Lag *int64 `json:"lag,omitempty" protobuf:"varint,7,opt,name=lag"`

	// startTime is the time at which the migration began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty" protobuf:"bytes,8,opt,name=startTime"`

	// completionTime is the time at which the migration succeeded, failed or was canceled.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty" protobuf:"bytes,9,opt,name=completionTime"`

	// switchTime is the time at which the target began to serve a group. Deleting the Migration of
	// a Move does not undo it afterwards.
	// +optional
	SwitchTime *metav1.Time `json:"switchTime,omitempty" protobuf:"bytes,10,opt,name=switchTime"`

	// resources has the progress of each resource of a group.
	// +listType=map
	// +listMapKey=name
	// +optional
	Resources []MigrationResourceStatus `json:"resources,omitempty" protobuf:"bytes,11,rep,name=resources"`

	// holder identifies the attempt that runs the migration. Another replica that continues the
	// migration replaces it, and earlier attempts can no longer write.
	// +optional
	Holder string `json:"holder,omitempty" protobuf:"bytes,12,opt,name=holder"`

	// lastResourceVersion is the highest resource version that annex has served for a group that is
	// rolled back. The main cluster serves the group once its resource versions are higher.
	// +optional
	LastResourceVersion int64 `json:"lastResourceVersion,omitempty" protobuf:"varint,13,opt,name=lastResourceVersion"`

	// progress of the phase. It is absent in phases that do not process objects.
	// +optional
	Progress *MigrationProgress `json:"progress,omitempty" protobuf:"bytes,14,opt,name=progress"`
}

// MigrationProgress counts the work of a phase.
type MigrationProgress struct {
	// done is the number of objects that are copied, compared or deleted. In the phase Following of
	// a Rollback, it is the number of revisions that annex added to the main cluster's etcd.
	Done int64 `json:"done" protobuf:"varint,1,opt,name=done"`

	// total is the value of done at the end of the phase.
	Total int64 `json:"total" protobuf:"varint,2,opt,name=total"`
}

// MigrationResourceStatus is the progress of a resource of a group.
type MigrationResourceStatus struct {
	// name of the resource, "<plural>.<group>".
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// objects is the number of objects when the copy began.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,2,opt,name=objects"`

	// copiedObjects is the number of those objects that are copied, or deleted by Finalize.
	// +optional
	CopiedObjects int64 `json:"copiedObjects" protobuf:"varint,3,opt,name=copiedObjects"`

	// copiedBytes is the size of the copied objects before compression.
	// +optional
	CopiedBytes int64 `json:"copiedBytes" protobuf:"varint,4,opt,name=copiedBytes"`
}

// Finished reports whether a Migration succeeded, failed or was canceled.
func (p MigrationPhase) Finished() bool {
	return p == MigrationCompleted || p == MigrationFailed || p == MigrationCanceled
}

// Moves reports whether the Migration is unfinished and runs this operation on this group.
func (m *Migration) Moves(group string, operation MigrationOperation) bool {
	return m.Spec.Group == group && m.Spec.Operation == operation && !m.Status.Phase.Finished()
}

// Uses reports whether the Migration is unfinished and moves a resource from or to this Store.
func (m *Migration) Uses(store string) bool {
	return !m.Status.Phase.Finished() && (m.Spec.StoreName == store || m.Status.FromStoreName == store)
}
