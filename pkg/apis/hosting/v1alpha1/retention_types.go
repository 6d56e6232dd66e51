// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Retention deletes objects of a resource that are no longer needed.
type Retention struct {
	// rules select the objects to delete. An object is deleted if at least one rule selects it.
	// +listType=map
	// +listMapKey=name
	Rules []RetentionRule `json:"rules" protobuf:"bytes,1,rep,name=rules"`

	// dryRun reports the objects to delete in the status, events and metrics, and deletes nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty" protobuf:"varint,2,opt,name=dryRun"`

	// archive writes each object to the folder of the server's flag --archive-dir before it is
	// deleted. While that fails, annex deletes nothing.
	// +optional
	Archive bool `json:"archive,omitempty" protobuf:"varint,3,opt,name=archive"`

	// deletionsPerSecond is the maximum rate of deletions, from 1 to 1000. annex deletes more
	// slowly while the server is busy. Defaults to 100.
	// +optional
	DeletionsPerSecond int32 `json:"deletionsPerSecond,omitempty" protobuf:"varint,4,opt,name=deletionsPerSecond"`
}

// RetentionRule deletes objects some time after they are created or finished, except the newest. At
// most one of condition, phase and timestamp may be set.
type RetentionRule struct {
	// name of the rule in the status, events and metrics.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// selector limits the rule to objects with these labels. By default, the rule applies to all
	// objects.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty" protobuf:"bytes,2,opt,name=selector"`

	// afterSeconds is the age at which objects are deleted. The age counts from the time that
	// condition, phase or timestamp defines, or without them from the creation.
	// +optional
	AfterSeconds int64 `json:"afterSeconds,omitempty" protobuf:"varint,3,opt,name=afterSeconds"`

	// condition limits the rule to objects with a condition. The age counts from the
	// lastTransitionTime of the condition.
	// +optional
	Condition *RetentionCondition `json:"condition,omitempty" protobuf:"bytes,4,opt,name=condition"`

	// phase limits the rule to objects whose field has one of some values, such as finished
	// objects.
	// +optional
	Phase *RetentionPhase `json:"phase,omitempty" protobuf:"bytes,5,opt,name=phase"`

	// timestamp limits the rule to objects with a time in a field. The age counts from that time.
	// +optional
	Timestamp *RetentionTimestamp `json:"timestamp,omitempty" protobuf:"bytes,6,opt,name=timestamp"`

	// keepNewest excludes the newest of the objects that the rule applies to, at any age.
	// +optional
	KeepNewest *RetentionKeepNewest `json:"keepNewest,omitempty" protobuf:"bytes,7,opt,name=keepNewest"`
}

// RetentionCondition is a condition in .status.conditions of an object.
type RetentionCondition struct {
	// type of the condition.
	Type string `json:"type" protobuf:"bytes,1,opt,name=type"`

	// status of the condition: True, False or Unknown. Defaults to True.
	// +optional
	Status metav1.ConditionStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status,casttype=k8s.io/apimachinery/pkg/apis/meta/v1.ConditionStatus"`
}

// RetentionPhase is a field with one of some values, such as .status.phase.
type RetentionPhase struct {
	// path of the field in the stored version of the resource, such as .status.phase.
	Path string `json:"path" protobuf:"bytes,1,opt,name=path"`

	// values of finished objects, such as Succeeded and Failed.
	// +listType=set
	Values []string `json:"values" protobuf:"bytes,2,rep,name=values"`

	// timestampPath is the path of the field with the time that the age counts from, such as
	// .status.finishedAt. By default, the age counts from the last change by a client that manages
	// the field of path, as metadata.managedFields records it.
	// +optional
	TimestampPath string `json:"timestampPath,omitempty" protobuf:"bytes,3,opt,name=timestampPath"`
}

// RetentionTimestamp is a field with a time in RFC 3339.
type RetentionTimestamp struct {
	// path of the field in the stored version of the resource, such as .status.completionTime.
	Path string `json:"path" protobuf:"bytes,1,opt,name=path"`
}

// RetentionKeepNewest keeps the newest objects of each group: the ones with the latest time that
// the age of the rule counts from.
type RetentionKeepNewest struct {
	// count is the number of objects to keep in each group.
	Count int32 `json:"count" protobuf:"varint,1,opt,name=count"`

	// per selects how objects are grouped: by Namespace, the default; by Label, the value of
	// labelKey in each namespace; or by Owner, the ownerReference of their controller in each
	// namespace. The rule does not delete objects without the label or owner.
	// +optional
	Per RetentionGroup `json:"per,omitempty" protobuf:"bytes,2,opt,name=per,casttype=RetentionGroup"`

	// labelKey is the key of the label that groups objects if per is Label.
	// +optional
	LabelKey string `json:"labelKey,omitempty" protobuf:"bytes,3,opt,name=labelKey"`
}

// RetentionGroup selects how objects are grouped; the newest of each group are kept.
// +enum
type RetentionGroup string

const (
	// RetentionPerNamespace groups objects by namespace.
	RetentionPerNamespace RetentionGroup = "Namespace"

	// RetentionPerLabel groups objects by namespace and the value of a label.
	RetentionPerLabel RetentionGroup = "Label"

	// RetentionPerOwner groups objects by their controller.
	RetentionPerOwner RetentionGroup = "Owner"
)

// RetentionStatus reports the results of a retention.
type RetentionStatus struct {
	// lastRunTime is the time at which annex last compared all objects with the rules.
	// +optional
	LastRunTime *metav1.Time `json:"lastRunTime,omitempty" protobuf:"bytes,1,opt,name=lastRunTime"`

	// nextRunTime is the time of the next comparison. Changes of objects can make it earlier.
	// +optional
	NextRunTime *metav1.Time `json:"nextRunTime,omitempty" protobuf:"bytes,2,opt,name=nextRunTime"`

	// deleted is the number of objects that were deleted since retention was specified.
	// +optional
	Deleted int64 `json:"deleted" protobuf:"varint,3,opt,name=deleted"`

	// archived is the number of objects that were archived since retention was specified.
	// +optional
	Archived int64 `json:"archived,omitempty" protobuf:"varint,4,opt,name=archived"`

	// rules has the results of each rule.
	// +listType=map
	// +listMapKey=name
	// +optional
	Rules []RetentionRuleStatus `json:"rules,omitempty" protobuf:"bytes,5,rep,name=rules"`
}

// RetentionRuleStatus reports the results of a rule.
type RetentionRuleStatus struct {
	// name of the rule.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// matched is the number of objects that the rule applied to in the last run.
	// +optional
	Matched int64 `json:"matched" protobuf:"varint,2,opt,name=matched"`

	// due is the number of objects that the rule selected for deletion in the last run.
	// +optional
	Due int64 `json:"due" protobuf:"varint,3,opt,name=due"`

	// skipped is the number of objects with the condition, phase or timestamp of the rule that the
	// rule did not select because they lack a valid time, the label or the owner.
	// +optional
	Skipped int64 `json:"skipped,omitempty" protobuf:"varint,4,opt,name=skipped"`

	// deleted is the number of objects that the rule has deleted.
	// +optional
	Deleted int64 `json:"deleted" protobuf:"varint,5,opt,name=deleted"`

	// examples are at most 10 of the objects that would be deleted without dryRun, as
	// "namespace/name", oldest first.
	// +listType=atomic
	// +optional
	Examples []string `json:"examples,omitempty" protobuf:"bytes,6,rep,name=examples"`
}
