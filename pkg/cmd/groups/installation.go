// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/footprint"
)

// installation is an annex in a main cluster.
type installation struct {
	*footprint.Footprint
	service maincluster.Service
	// groups are those that the main cluster or annex has something of.
	groups []*installed
}

// installed is a group.
type installed struct {
	*footprint.Group
	hosted  []hostingv1alpha1.HostedResource
	history history
	// rollBack reports whether a rollback is needed, and obstacles what prevents that annex is
	// uninstalled.
	rollBack  bool
	obstacles []string
}

// obstacles returns what prevents that annex is uninstalled.
func (i *installation) obstacles() []string {
	var all []string
	for _, g := range i.groups {
		for _, obstacle := range g.obstacles {
			all = append(all, g.Name+": "+obstacle)
		}
	}
	return all
}

// toRollBack returns the groups that have to be rolled back.
func (i *installation) toRollBack() []string {
	var names []string
	for _, g := range i.groups {
		if g.rollBack {
			names = append(names, g.Name)
		}
	}
	return names
}

// inspect reads what the main cluster and annex have. It is an error if annex does not answer,
// because the main cluster does not show all that annex may have.
func (s *session) inspect(ctx context.Context) (*installation, error) {
	var definitions []metav1.ObjectMeta
	err := eachPage(ctx, s.metadata.Resource(definitionsResource), func(page *metav1.PartialObjectMetadataList) bool {
		for i := range page.Items {
			definitions = append(definitions, page.Items[i].ObjectMeta)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the CustomResourceDefinitions of %s: %w", s.server, err)
	}
	read, err := footprint.Read(ctx, s.main, s.apiServices, definitions)
	if err != nil {
		return nil, err
	}
	found := &installation{Footprint: read, service: maincluster.DefaultService()}
	byGroup := map[string][]hostingv1alpha1.HostedResource{}
	if read.Hosting != nil {
		found.service.Namespace, found.service.Name = read.Hosting.Spec.Service.Namespace, read.Hosting.Spec.Service.Name
		if byGroup, err = s.hostedByGroup(ctx, read); err != nil {
			return nil, err
		}
	}
	for _, g := range read.Groups {
		found.groups = append(found.groups, &installed{Group: g})
	}
	for name := range byGroup {
		if !slices.Contains(read.Groups, read.Group(name)) {
			found.groups = append(found.groups, &installed{Group: &footprint.Group{Name: name}})
		}
	}
	slices.SortFunc(found.groups, func(a, b *installed) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range found.groups {
		g.hosted = byGroup[g.Name]
		if err := s.judge(ctx, g, read.Hosting != nil); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// hostedByGroup returns all HostedResources.
func (s *session) hostedByGroup(ctx context.Context, read *footprint.Footprint) (map[string][]hostingv1alpha1.HostedResource, error) {
	list, err := s.annex.HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		var served []string
		for _, g := range read.Groups {
			if g.Served() {
				served = append(served, g.Name)
			}
		}
		if len(served) > 0 {
			err = fmt.Errorf("%w (it serves %s)", err, strings.Join(served, ", "))
		}
		return nil, s.noAnswer(fmt.Errorf("list what annex has: %w", err))
	}
	byGroup := map[string][]hostingv1alpha1.HostedResource{}
	for _, hosted := range list.Items {
		_, group, _ := strings.Cut(hosted.Name, ".")
		byGroup[group] = append(byGroup[group], hosted)
	}
	return byGroup, nil
}

// judge finds out whether a group has to be rolled back, and what prevents it.
func (s *session) judge(ctx context.Context, g *installed, runs bool) error {
	of := s.of(g.Name)
	of.out, of.errOut = io.Discard, io.Discard
	if runs {
		var err error
		if g.history, err = of.read(ctx); err != nil {
			return err
		}
	}
	var objects int64
	for _, resource := range g.hosted {
		objects += resource.Status.Objects
	}
	back := g.history.ended(hostingv1alpha1.MigrationRollback)
	doctor := "see " + s.program + " doctor"
	switch unfinished := g.history.unfinished; {
	case !runs && (g.Served() || g.Frozen || g.Open || len(g.Finalized) > 0):
		g.obstacles = []string{"an annex that does not run has its objects: start it with its data, " + doctor}
	case !runs:
	case len(g.Terminating) > 0:
		g.obstacles = []string{strings.Join(g.Terminating, ", ") + " is being deleted and waits for annex: type it again when that is done"}
	case unfinished != nil && unfinished.Spec.Operation == hostingv1alpha1.MigrationRollback:
		g.rollBack = true
	case unfinished != nil:
		g.obstacles = []string{fmt.Sprintf("%s is under way (%s): wait for its end", named(unfinished), unfinished.Spec.Operation)}
	case g.Served() && len(g.hosted) == 0:
		g.obstacles = []string{"the main cluster sends its requests to annex, which has nothing of it: start annex with the right data, " + doctor}
	case g.Served():
		obstacles, err := of.planRollback(ctx, g.history)
		if err != nil {
			return err
		}
		g.rollBack, g.obstacles = true, obstacles
	case g.Open, g.Frozen && !back:
		g.obstacles = []string{"the main cluster keeps a copy for annex, but does not send its requests there: " + doctor}
	case objects > 0 && !back:
		g.obstacles = []string{fmt.Sprintf("annex has %d objects of it, and the main cluster does not send its requests there: %s", objects, doctor)}
	}
	return nil
}

// state describes a group in the plan.
func (g *installed) state() string {
	switch {
	case g.history.unfinished != nil:
		return string(g.history.unfinished.Spec.Operation) + " under way"
	case g.Served() && g.history.ended(hostingv1alpha1.MigrationFinalize):
		return "Finalized"
	case g.Served() && g.Frozen:
		return "Moved"
	case g.Served():
		return "Hosted"
	case g.Open || g.Frozen:
		return "Copy kept"
	}
	return "Not served"
}
