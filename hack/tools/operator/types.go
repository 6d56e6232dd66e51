// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupVersion is that of manifests/crd.yaml.
var groupVersion = schema.GroupVersion{Group: "operator.example.com", Version: "v1alpha1"}

// Broadcast is a ConfigMap that is copied to several namespaces.
type Broadcast struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BroadcastSpec   `json:"spec,omitempty"`
	Status BroadcastStatus `json:"status,omitempty"`
}

// BroadcastSpec is the desired state.
type BroadcastSpec struct {
	// Namespaces get a copy, with the Broadcast's name.
	Namespaces []string `json:"namespaces"`
	// Data is the content of the copies.
	Data map[string]string `json:"data,omitempty"`
}

// BroadcastStatus is the observed state.
type BroadcastStatus struct {
	// Copies are the namespaces with an up-to-date copy.
	Copies     []string           `json:"copies,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BroadcastList is a list of Broadcasts.
type BroadcastList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Broadcast `json:"items"`
}

// addToScheme registers the kinds.
func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &Broadcast{}, &BroadcastList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}

// DeepCopyObject implements runtime.Object.
func (b *Broadcast) DeepCopyObject() runtime.Object {
	c := &Broadcast{TypeMeta: b.TypeMeta}
	b.DeepCopyInto(&c.ObjectMeta)
	c.Spec = BroadcastSpec{Namespaces: slices.Clone(b.Spec.Namespaces), Data: maps.Clone(b.Spec.Data)}
	c.Status = BroadcastStatus{Copies: slices.Clone(b.Status.Copies), Conditions: slices.Clone(b.Status.Conditions)}
	return c
}

// DeepCopyObject implements runtime.Object.
func (l *BroadcastList) DeepCopyObject() runtime.Object {
	c := &BroadcastList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Broadcast))
	}
	return c
}
