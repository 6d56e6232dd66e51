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
	// StaticSourceRead is the condition of a StaticSource that was read completely. While it
	// is not True, none of its mirrors is deleted.
	StaticSourceRead = "Read"

	// StaticSourceApplied is the condition of a StaticSource whose objects all have a mirror
	// that is up to date.
	StaticSourceApplied = "Applied"
)

const (
	// StaticSourceNotConfigured is the reason of the condition Read of a source that the
	// leading replica has no flag for.
	StaticSourceNotConfigured = "NotConfigured"

	// StaticSourceReadFailed is the reason of the condition Read of a source that cannot be
	// read, or not all of it.
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

	// StaticHashAnnotation is a hash of the static object as it was applied last.
	StaticHashAnnotation = StaticPrefix + "hash"

	// StaticSeenAnnotation is when annex first saw the static object.
	StaticSeenAnnotation = StaticPrefix + "seen"

	// StaticMirrorAnnotation is the UID of the static object. An object with it is a mirror.
	StaticMirrorAnnotation = StaticPrefix + "mirror"

	// StaticOrphanedAnnotation is why annex keeps a mirror whose static object is gone. It can
	// be changed and deleted like any object.
	StaticOrphanedAnnotation = StaticPrefix + "orphaned"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StaticSource shows what annex reads static objects from, and what became of them. annex
// creates one for each of its flags --static-dir and --static-url, with the name "file" or
// "http".
type StaticSource struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is where the objects are. annex sets it from its flags.
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

// StaticSourceSpec is where static objects are.
type StaticSourceSpec struct {
	// location is the folder or the URL.
	// +optional
	Location string `json:"location,omitempty" protobuf:"bytes,1,opt,name=location"`
}

// StaticSourceStatus is the observed state of a source.
type StaticSourceStatus struct {
	// conditions of the source. "Read": all of it could be read; "Applied": every object has a
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

	// applied is how many of them have a mirror that is up to date.
	// +optional
	Applied int64 `json:"applied" protobuf:"varint,3,opt,name=applied"`

	// orphaned is the number of mirrors that annex keeps although their static object is gone.
	// +optional
	Orphaned int64 `json:"orphaned" protobuf:"varint,4,opt,name=orphaned"`

	// problems are what cannot be read or applied, and what waits. It has at most 20 entries.
	// +listType=atomic
	// +optional
	Problems []StaticProblem `json:"problems,omitempty" protobuf:"bytes,5,rep,name=problems"`

	// resources are those that have mirrors, or may have, as "<plural>.<group>".
	// annex looks for mirrors there.
	// +listType=set
	// +optional
	Resources []string `json:"resources,omitempty" protobuf:"bytes,6,rep,name=resources"`
}

// StaticProblem is a part of a source that has no mirror as the source wants it.
type StaticProblem struct {
	// origin is where it is in the source, as a file name and the number of the document. It is
	// empty for a mirror whose static object is gone.
	// +optional
	Origin string `json:"origin,omitempty" protobuf:"bytes,1,opt,name=origin"`

	// object is the object, as "<kind>.<group> <namespace>/<name>". It is empty if the source
	// cannot be decoded.
	// +optional
	Object string `json:"object,omitempty" protobuf:"bytes,2,opt,name=object"`

	// reason is a word for the problem.
	Reason string `json:"reason" protobuf:"bytes,3,opt,name=reason"`

	// message explains it.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`
}
