// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// InjectionProfileReady means that the InjectionProfile fits the definitions of all its targets.
// Objects of other targets are stored without injection.
const InjectionProfileReady = "Ready"

const (
	// InjectAnnotation on an object excludes it from injection with the value "false". With "true",
	// profiles with the mode OptIn apply to it.
	InjectAnnotation = "annex.dev/inject"

	// InjectedAnnotation on an object records the injected profile and its parts.
	InjectedAnnotation = "annex.dev/injected"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// InjectionProfile adds containers, volumes and environment variables to the pod templates of
// custom resources when they are created or their pod templates change. If several profiles select
// an object, annex applies the one with the highest priority, and of these the first by name.
type InjectionProfile struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec has the parts to inject and the objects to change.
	// +optional
	Spec InjectionProfileSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the observed state of the profile. Read-only.
	// +optional
	Status InjectionProfileStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// InjectionProfileList is a list of InjectionProfiles.
type InjectionProfileList struct {
	metav1.TypeMeta `json:""`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the InjectionProfiles.
	Items []InjectionProfile `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// The parts have the fields of a Pod, but not the Go types of one: these would add the schemas of
// a Pod to the group's OpenAPI, in another version than the main cluster's, and to protobuf.

// InjectionProfileSpec has the parts to inject and the objects to change.
type InjectionProfileSpec struct {
	// priority orders the profiles that select the same object: annex applies the highest. Defaults
	// to 0.
	// +optional
	Priority int32 `json:"priority,omitempty" protobuf:"varint,1,opt,name=priority"`

	// targets are the resources whose objects annex changes, with the paths of their pod templates.
	// +listType=map
	// +listMapKey=resource
	Targets []InjectionTarget `json:"targets" protobuf:"bytes,2,rep,name=targets"`

	// namespaceSelector selects objects by the labels of their namespaces. By default, it selects
	// all namespaces. It does not apply to cluster-scoped objects.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,3,opt,name=namespaceSelector"`

	// objectSelector selects objects by their labels. By default, it selects all objects.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty" protobuf:"bytes,4,opt,name=objectSelector"`

	// mode selects the default for objects without the annotation annex.dev/inject. OptOut, the
	// default, changes all selected objects except the ones with the value "false"; OptIn changes
	// only the ones with "true".
	// +optional
	Mode InjectionMode `json:"mode,omitempty" protobuf:"bytes,5,opt,name=mode,casttype=InjectionMode"`

	// containers are added after the containers of a pod template. Each has the fields of
	// spec.containers of a Pod.
	// +optional
	// +listType=atomic
	Containers []runtime.RawExtension `json:"containers,omitempty" protobuf:"bytes,6,rep,name=containers"`

	// initContainers are added before the init containers of a pod template. Each has the fields
	// of spec.initContainers of a Pod.
	// +optional
	// +listType=atomic
	InitContainers []runtime.RawExtension `json:"initContainers,omitempty" protobuf:"bytes,7,rep,name=initContainers"`

	// volumes are added to the volumes of a pod template. Each has the fields of spec.volumes of
	// a Pod.
	// +optional
	// +listType=atomic
	Volumes []runtime.RawExtension `json:"volumes,omitempty" protobuf:"bytes,8,rep,name=volumes"`

	// volumeMounts are added to the containers and init containers of a pod template, not to
	// injected ones or to containers that mount another volume at the same path. Each has the
	// fields of spec.containers[*].volumeMounts of a Pod, and must name one of volumes.
	// +optional
	// +listType=atomic
	VolumeMounts []runtime.RawExtension `json:"volumeMounts,omitempty" protobuf:"bytes,9,rep,name=volumeMounts"`

	// env are environment variables that are added to the containers and init containers of a pod
	// template, not to injected ones or to containers that set the same variable. Each has the
	// fields of spec.containers[*].env of a Pod.
	// +optional
	// +listType=atomic
	Env []runtime.RawExtension `json:"env,omitempty" protobuf:"bytes,10,rep,name=env"`
}

// InjectionMode selects the default for objects without the annotation annex.dev/inject.
// +enum
type InjectionMode string

const (
	// InjectionOptOut changes all objects except the ones with the annotation annex.dev/inject:
	// "false".
	InjectionOptOut InjectionMode = "OptOut"

	// InjectionOptIn changes only objects with the annotation annex.dev/inject: "true".
	InjectionOptIn InjectionMode = "OptIn"
)

// InjectionTarget is a resource with pod templates.
type InjectionTarget struct {
	// resource is the name of the CustomResourceDefinition, "<plural>.<group>".
	Resource string `json:"resource" protobuf:"bytes,1,opt,name=resource"`

	// templates are the locations of the pod templates in an object.
	// +listType=map
	// +listMapKey=path
	Templates []InjectionTemplate `json:"templates" protobuf:"bytes,2,rep,name=templates"`
}

// InjectionTemplate is the location of one or more pod templates in an object.
type InjectionTemplate struct {
	// path has the names of the fields from the object to the pod template, such as spec.template.
	// [*] stands for every item of a list or every value of a map, as in
	// spec.workerGroupSpecs[*].template. Every served version of the resource must have the path.
	Path string `json:"path" protobuf:"bytes,1,opt,name=path"`

	// type of the value at the path: PodTemplate, the default, with spec.containers; PodSpec, with
	// containers; or ArgoTemplate, a template of an Argo workflow, with a container or a script and
	// with sidecars.
	// +optional
	Type InjectionTemplateType `json:"type,omitempty" protobuf:"bytes,2,opt,name=type,casttype=InjectionTemplateType"`
}

// InjectionTemplateType is the type of a pod template.
// +enum
type InjectionTemplateType string

const (
	// InjectionPodTemplate has the fields of the template of a Deployment.
	InjectionPodTemplate InjectionTemplateType = "PodTemplate"

	// InjectionPodSpec has the fields of the spec of a Pod.
	InjectionPodSpec InjectionTemplateType = "PodSpec"

	// InjectionArgoTemplate has the fields of a template of an Argo workflow. Containers become
	// sidecars. Templates without a container and a script, such as steps, are not changed.
	InjectionArgoTemplate InjectionTemplateType = "ArgoTemplate"
)

// InjectionProfileStatus is the observed state of an InjectionProfile.
type InjectionProfileStatus struct {
	// observedGeneration is the generation of the profile that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// conditions of the profile. "Ready": it fits the definitions of all targets.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,2,rep,name=conditions"`
}
