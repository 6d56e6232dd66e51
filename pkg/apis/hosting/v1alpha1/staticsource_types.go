// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names of the StaticSources: one for each flag of annex.
const (
	// StaticSourceFile is the source of the flag --static-dir.
	StaticSourceFile = "file"

	// StaticSourceHTTP is the source of the flag --static-url.
	StaticSourceHTTP = "http"
)

// StaticSources returns the names of all StaticSources, in the order of their precedence.
func StaticSources() []string { return []string{StaticSourceFile, StaticSourceHTTP} }

const (
	// StaticSourceRead means that annex read the source completely. While it is not True, annex
	// deletes none of its mirrors.
	StaticSourceRead = "Read"

	// StaticSourceApplied means that all objects of the source have a mirror that is up to date.
	StaticSourceApplied = "Applied"
)

const (
	// StaticSourceNotConfigured is the reason of the condition Read if the leading replica has no
	// flag for the source.
	StaticSourceNotConfigured = "NotConfigured"

	// StaticSourceReadFailed is the reason of the condition Read if annex cannot read all of the
	// source.
	StaticSourceReadFailed = "ReadFailed"
)

// These are on every mirror, the object in the API that represents a static object. Only
// annex sets them.
const (
	// StaticPrefix is the prefix of these annotations.
	StaticPrefix = "annex.dev/config."

	// StaticSourceAnnotation is the name of the StaticSource. The label with the same key and
	// value selects mirrors.
	StaticSourceAnnotation = StaticPrefix + "source"

	// StaticHashAnnotation is a hash of the static object that annex applied last.
	StaticHashAnnotation = StaticPrefix + "hash"

	// StaticSeenAnnotation is the time at which annex first read the static object.
	StaticSeenAnnotation = StaticPrefix + "seen"

	// StaticMirrorAnnotation is the UID of the static object. An object with it is a mirror.
	StaticMirrorAnnotation = StaticPrefix + "mirror"

	// StaticOrphanedAnnotation has the reason for which annex keeps a mirror without a static
	// object. Users can change and delete it like any object.
	StaticOrphanedAnnotation = StaticPrefix + "orphaned"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StaticSource shows a source of static objects, and whether annex could read and apply them. annex
// creates one for each of its flags --static-dir and --static-url, with the name "file" or "http".
type StaticSource struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec has the location of the objects. annex sets it from its flags.
	// +optional
	Spec StaticSourceSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the observed state of the source. Read-only.
	// +optional
	Status StaticSourceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StaticSourceList is a list of StaticSources.
type StaticSourceList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the StaticSources.
	Items []StaticSource `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// StaticSourceSpec has the location of static objects.
type StaticSourceSpec struct {
	// location is the folder or the URL.
	// +optional
	Location string `json:"location,omitempty" protobuf:"bytes,1,opt,name=location"`
}

// StaticSourceStatus is the observed state of a source.
type StaticSourceStatus struct {
	// conditions of the source. "Read": annex read it completely. "Applied": every object has a
	// mirror that is up to date.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions"`

	// objects is the number of objects in the source.
	// +optional
	Objects int64 `json:"objects" protobuf:"varint,2,opt,name=objects"`

	// applied is the number of those objects that have a mirror that is up to date.
	// +optional
	Applied int64 `json:"applied" protobuf:"varint,3,opt,name=applied"`

	// orphaned is the number of mirrors that annex keeps although their static object no longer
	// exists.
	// +optional
	Orphaned int64 `json:"orphaned" protobuf:"varint,4,opt,name=orphaned"`

	// problems are the parts of the source that annex could not read or apply yet, at most 20.
	// +listType=atomic
	// +optional
	Problems []StaticProblem `json:"problems,omitempty" protobuf:"bytes,5,rep,name=problems"`

	// resources are the resources that may have mirrors, as "<plural>.<group>".
	// +listType=set
	// +optional
	Resources []string `json:"resources,omitempty" protobuf:"bytes,6,rep,name=resources"`
}

// StaticProblem is a part of a source without a mirror that is up to date.
type StaticProblem struct {
	// origin is the location in the source, as a file name and the number of the document. It is
	// empty for a mirror whose static object no longer exists.
	// +optional
	Origin string `json:"origin,omitempty" protobuf:"bytes,1,opt,name=origin"`

	// object identifies the object, as "<kind>.<group> <namespace>/<name>". It is empty if annex
	// cannot decode the source.
	// +optional
	Object string `json:"object,omitempty" protobuf:"bytes,2,opt,name=object"`

	// reason of the problem, in one word.
	Reason string `json:"reason" protobuf:"bytes,3,opt,name=reason"`

	// message explains the problem.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`
}
