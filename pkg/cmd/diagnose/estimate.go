// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	aggregatedgroup "github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// memoryPerByte is the memory of kube-apiserver for a byte of JSON in etcd and a version of the
// CRD: each version has a watch cache of decoded objects. docs/performance.md measures 15.7 kB
// of RSS per object of 2.5 kB; 9.5 kB of them are live.
const memoryPerByte = 6.4

// memoryOf estimates the memory of each kube-apiserver for a resource.
func memoryOf(r *Resource) *int64 {
	if r.Bytes == nil {
		return nil
	}
	versions := len(r.Versions)
	if !slices.Contains(r.Versions, r.StorageVersion) {
		versions++
	}
	return new(int64(float64(*r.Bytes) * memoryPerByte * float64(versions)))
}

// addUp sorts the groups and calculates sums and shares. Without all groups the share of a
// group in custom resources is not known.
func (s *survey) addUp(all bool) {
	report := s.report
	slices.SortFunc(report.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Bytes, -1), ptr.Deref(a.Bytes, -1)), cmp.Compare(ptr.Deref(b.Objects, -1), ptr.Deref(a.Objects, -1)), cmp.Compare(a.Name, b.Name))
	})
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
	for _, current := range g.apiServices {
		if by := current.Labels[hostingv1alpha1.PublishedByLabel]; by != "" {
			return Move{Verdict: MoveHosted, Reasons: []string{fmt.Sprintf("annex (%s) serves %s", by, current.Spec.Version)}}
		}
	}
	switch {
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
