// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"strings"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// A resource from one of these sizes on is heavy: it is worth a Store that its
// group's other heavy resources are not on.
const (
	HeavyStorage = 256 << 20
	HeavyObjects = 50_000
)

// Amounts is how much of a Store something takes.
type Amounts struct {
	Storage, Objects int64
}

// Plus adds two amounts.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{Storage: a.Storage + b.Storage, Objects: a.Objects + b.Objects}
}

// Minus takes one amount from another.
func (a Amounts) Minus(b Amounts) Amounts {
	return Amounts{Storage: a.Storage - b.Storage, Objects: a.Objects - b.Objects}
}

// Max is the larger of each.
func (a Amounts) Max(b Amounts) Amounts {
	return Amounts{Storage: max(a.Storage, b.Storage), Objects: max(a.Objects, b.Objects)}
}

// Resource is a resource that has a Store or waits for one. Plugins never change it.
type Resource struct {
	*hostingv1alpha1.HostedResource
	// Group is the API group of the resource.
	Group string
	// Previous is the Store that an earlier resource of the same name was on, if the
	// scheduler remembers one.
	Previous string

	// Requested is what the resource is expected to take, Actual what it takes.
	Requested, Actual Amounts
}

// NewResource is what plugins see of a HostedResource.
func NewResource(hosted *hostingv1alpha1.HostedResource) *Resource {
	_, group, _ := strings.Cut(hosted.Name, ".")
	return &Resource{
		HostedResource: hosted,
		Group:          group,
		Requested: Amounts{
			Storage: amount(hosted.Spec.Requests, hostingv1alpha1.ResourceStorage),
			Objects: amount(hosted.Spec.Requests, hostingv1alpha1.ResourceObjects),
		},
		Actual: Amounts{Storage: hosted.Status.StoredBytes, Objects: hosted.Status.Objects},
	}
}

// Expected is what has to be reckoned with: what was asked for, or what it grew to.
func (r *Resource) Expected() Amounts { return r.Requested.Max(r.Actual) }

// Growth is what is still to come of what was asked for.
func (r *Resource) Growth() Amounts { return r.Requested.Minus(r.Actual).Max(Amounts{}) }

// Heavy reports whether the resource is a large part of most Stores.
func (r *Resource) Heavy() bool {
	expected := r.Expected()
	return expected.Storage >= HeavyStorage || expected.Objects >= HeavyObjects
}

// Store is a Store and what is placed on it, what is only about to be included.
// Plugins never change it.
type Store struct {
	*hostingv1alpha1.Store
	// Resources are those on the Store, by name.
	Resources map[string]*Resource

	expected, growth Amounts
}

// NewStore is a Store that nothing is placed on.
func NewStore(store *hostingv1alpha1.Store) *Store {
	return &Store{Store: store, Resources: map[string]*Resource{}}
}

// Add places a resource on the Store, in place of what has its name.
func (s *Store) Add(resource *Resource) {
	s.Remove(resource.Name)
	s.Resources[resource.Name] = resource
	s.expected = s.expected.Plus(resource.Expected())
	s.growth = s.growth.Plus(resource.Growth())
}

// Remove takes a resource off the Store, if it is there.
func (s *Store) Remove(name string) {
	resource, found := s.Resources[name]
	if !found {
		return
	}
	delete(s.Resources, name)
	s.expected = s.expected.Minus(resource.Expected())
	s.growth = s.growth.Minus(resource.Growth())
}

// Taken is how much of the Store has to be counted as taken: what its resources are
// expected to take, or, if that is more, what is in it, others' data included, and
// what its resources are still to grow by.
func (s *Store) Taken() Amounts {
	actual := Amounts{Objects: s.Status.Objects}
	if s.Status.SizeInUse != nil {
		actual.Storage = s.Status.SizeInUse.Value()
	}
	return s.expected.Max(actual.Plus(s.growth))
}

// Limit is how much may be placed on the Store: its capacity, or, if that is less,
// the size at which it stops taking writes. It returns false if neither is known.
func (s *Store) Limit(name hostingv1alpha1.ResourceName) (int64, bool) {
	capacity, limited := s.Spec.Capacity[name]
	limit := capacity.Value()
	if quota := s.Status.Quota; name == hostingv1alpha1.ResourceStorage && quota != nil && quota.Sign() > 0 {
		if !limited || quota.Value() < limit {
			limit, limited = quota.Value(), true
		}
	}
	return limit, limited
}

func amount(list hostingv1alpha1.ResourceList, name hostingv1alpha1.ResourceName) int64 {
	quantity := list[name]
	return quantity.Value()
}
