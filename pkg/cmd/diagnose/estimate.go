// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	aggregatedgroup "github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Measured with kube-apiserver right after objects were created: 1,500 objects of 42 kB needed 995 MiB, 8,000 of 1.8 kB 238 MiB,
// and 4,937 finished workflows of Argo with 40 nodes, 46 kB each, 3.7 GiB. The estimates are 1,017 MiB, 200 MiB and 3.3 GiB.
const (
	// perObject is memory that kube-apiserver needs for each object beside its fields: the key, entries of indexes, the last event.
	perObject = 4 << 10
	// residentPerLive is kube-apiserver's memory for a byte of its live objects: Go collects garbage when the heap has doubled.
	residentPerLive = 2
	// typicalDecoded is the size of decoded objects per byte of their JSON, of those that cannot be read.
	typicalDecoded = 6
)

// inCaches returns the memory of each kube-apiserver for decoded objects of a resource: each version of the CRD has a watch
// cache of them.
func inCaches(decoded int64, r *Resource) int64 {
	versions := len(r.Versions)
	if !slices.Contains(r.Versions, r.StorageVersion) {
		versions++
	}
	return int64(float64(decoded) * residentPerLive * float64(versions))
}

func typicalMemory(bytes *int64, r *Resource) *int64 {
	if bytes == nil {
		return nil
	}
	return new(inCaches(*bytes*typicalDecoded, r))
}

// SortKeys are the values of --sort-by.
var SortKeys = []string{"etcd", "objects", "memory", "watches", "writes", "growth", "name"}

// orders compare two groups by a key.
var orders = map[string]func(a, b *Group) int{
	"etcd":    func(a, b *Group) int { return descending(a.Bytes, b.Bytes) },
	"objects": func(a, b *Group) int { return descending(a.Objects, b.Objects) },
	"memory":  func(a, b *Group) int { return descending(a.MemoryBytes, b.MemoryBytes) },
	"watches": func(a, b *Group) int { return descending(a.Watches, b.Watches) },
	"writes":  func(a, b *Group) int { return descending(a.WritesPerSecond, b.WritesPerSecond) },
	"growth":  func(a, b *Group) int { return descending(a.BytesPerHour, b.BytesPerHour) },
	"name":    func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) },
}

// sortBy sorts the groups: the largest first, and unknown values last.
func (report *Report) sortBy(key string) {
	slices.SortFunc(report.Groups, func(a, b *Group) int { return cmp.Or(orders[key](a, b), cmp.Compare(a.Name, b.Name)) })
}

func descending[N int64 | float64](a, b *N) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return cmp.Compare(*b, *a)
	}
}

// addUp calculates sums and shares. Without all groups the share of a
// group in custom resources is not known.
func (s *survey) addUp(all bool) {
	report := s.report
	surveyed := map[schema.GroupResource]bool{}
	for _, g := range report.Groups {
		for _, r := range g.Resources {
			surveyed[schema.GroupResource{Group: g.Name, Resource: r.Name}] = true
		}
		report.CustomResources.add(g.Usage)
		if g.Move.Verdict == MoveYes {
			report.Movable.add(g.Usage)
		}
	}
	var whole *int64
	if all {
		whole = report.CustomResources.Bytes
	}
	if s.measured != nil {
		report.AllObjects, report.AllBytes, report.EtcdBytes = report.CustomResources.Objects, report.CustomResources.Bytes, s.measured.etcdBytes
		for resource, known := range s.measured.resources {
			if !surveyed[resource] {
				report.AllObjects, report.AllBytes = sum(report.AllObjects, known.objects), sum(report.AllBytes, known.bytes)
			}
		}
		whole = report.AllBytes
	}
	for _, g := range report.Groups {
		if g.Bytes != nil && isPositive(whole) {
			g.Share = new(float64(*g.Bytes) / float64(*whole))
		}
	}
}

// move returns whether a group can move to annex, and the command for that.
func (s *survey) move(g *group) Move {
	switch {
	case g.hostedBy != "" && g.FrozenCopy:
		return Move{Verdict: MoveHosted, Reasons: []string{fmt.Sprintf("annex (%s) serves %s", g.hostedBy, g.hostedVersion), "the cluster keeps the copy from before the move"}}
	case g.hostedBy != "":
		return Move{Verdict: MoveHosted, Reasons: []string{fmt.Sprintf("annex (%s) serves %s", g.hostedBy, g.hostedVersion)}}
	case s.definitionsErr != nil:
		return Move{Verdict: MoveUnknown, Reasons: []string{"the definitions cannot be read"}}
	case s.apiServicesErr != nil:
		return Move{Verdict: MoveUnknown, Reasons: []string{"the APIServices cannot be read"}}
	}
	state := aggregatedgroup.New(g.Name, aggregatedgroup.Identity{}, aggregatedgroup.Objects{Main: g.definitions, APIServices: g.apiServices})
	if obstacles := append(state.Obstacles(), g.refused...); len(obstacles) > 0 {
		return Move{Verdict: MoveNo, Reasons: obstacles}
	}
	for _, r := range g.Resources {
		if r.Objects == nil {
			return Move{Verdict: MoveUnknown, Reasons: []string{"the objects of " + r.Name + " cannot be counted"}}
		}
	}
	return Move{Verdict: MoveYes, Commands: []string{hostingv1alpha1.MoveCommand(g.Name)}}
}
