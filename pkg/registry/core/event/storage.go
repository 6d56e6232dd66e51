// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns an endpoint of events, which are kept for ttl. Every one of
// them stores under the resource of the core group, whichever group serves it.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter, ttl time.Duration) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:   corev1.Resource("events"),
		Singular:   "event",
		ShortNames: []string{"ev"},
		New:        func() runtime.Object { return &corev1.Event{} },
		NewList:    func() runtime.Object { return &corev1.EventList{} },
		Strategy:   strategy{typed.Namespaced(typer)},
		Attrs:      attrs,
		TTL:        ttl,
		Table:      tableConvertor,
	}, getter)
}
