// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// component is what events name as their source, as Kubernetes' do.
const component = "garbage-collector-controller"

// warn records an event about an object. There is one for each object, reason and
// cause, however often it is called: its name is made of them.
func (c *collector) warn(ctx context.Context, about item, reason, cause, message string) {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	sum := sha256.Sum256([]byte(string(about.UID) + "/" + reason + "/" + cause))
	now := metav1.NewTime(c.now())
	_, err := c.annexEvents.Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "garbage-collector-" + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: about.GroupVersion().String(), Kind: about.Kind,
			Namespace: about.Namespace, Name: about.Name, UID: about.UID,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		klog.FromContext(ctx).V(2).Info("An event could not be recorded", "err", err)
	}
}
