// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"strings"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// A resource of one of these sizes or more is heavy. Heavy resources of a group are
// spread over Stores.
const (
	HeavyStorage = 256 << 20
	HeavyObjects = 50_000
)

// Amounts are used or requested parts of a Store.
type Amounts struct {
	Storage, Objects int64
}

// Plus returns the sum of two amounts.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{Storage: a.Storage + b.Storage, Objects: a.Objects + b.Objects}
}

// Minus returns the difference of two amounts.
func (a Amounts) Minus(b Amounts) Amounts {
	return Amounts{Storage: a.Storage - b.Storage, Objects: a.Objects - b.Objects}
}

// Max returns the larger of each amount.
func (a Amounts) Max(b Amounts) Amounts {
	return Amounts{Storage: max(a.Storage, b.Storage), Objects: max(a.Objects, b.Objects)}
}

// Resource is a resource that has a Store or waits for one. Plugins must not change it.
type Resource struct {
	*hostingv1alpha1.HostedResource
	// Group is the API group of the resource.
	Group string
	// Previous is the Store of a deleted resource of the same name, if known.
	Previous string

	Requested, Actual Amounts
}

// NewResource returns the Resource of a HostedResource.
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

// Expected is the larger of the requests and the usage.
func (r *Resource) Expected() Amounts { return r.Requested.Max(r.Actual) }

// Growth is the part of the requests that is not used yet.
func (r *Resource) Growth() Amounts { return r.Requested.Minus(r.Actual).Max(Amounts{}) }

// Heavy reports whether the resource reaches HeavyStorage or HeavyObjects.
func (r *Resource) Heavy() bool {
	expected := r.Expected()
	return expected.Storage >= HeavyStorage || expected.Objects >= HeavyObjects
}

// Store is a Store and the resources placed on it, including those being bound. Plugins
// must not change it.
type Store struct {
	*hostingv1alpha1.Store
	// Resources are by name.
	Resources map[string]*Resource

	expected, growth Amounts
}

// NewStore returns a Store without resources.
func NewStore(store *hostingv1alpha1.Store) *Store {
	return &Store{Store: store, Resources: map[string]*Resource{}}
}

// Add places a resource on the Store, and replaces one of the same name.
func (s *Store) Add(resource *Resource) {
	s.Remove(resource.Name)
	s.Resources[resource.Name] = resource
	s.expected = s.expected.Plus(resource.Expected())
	s.growth = s.growth.Plus(resource.Growth())
}

// Remove removes a resource from the Store, if it is there.
func (s *Store) Remove(name string) {
	resource, found := s.Resources[name]
	if !found {
		return
	}
	delete(s.Resources, name)
	s.expected = s.expected.Minus(resource.Expected())
	s.growth = s.growth.Minus(resource.Growth())
}

// Allocated is the larger of two sums: what the resources are expected to use; or what
// etcd holds, including other users' data, plus the resources' growth.
func (s *Store) Allocated() Amounts {
	actual := Amounts{Objects: s.Status.Objects}
	if s.Status.SizeInUse != nil {
		actual.Storage = s.Status.SizeInUse.Value()
	}
	return s.expected.Max(actual.Plus(s.growth))
}

// Limit is the smaller of the Store's capacity and, for storage, its etcd's quota. It
// returns false if neither is known.
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
