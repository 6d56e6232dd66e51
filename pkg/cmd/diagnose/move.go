// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"

	aggregatedgroup "github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

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
