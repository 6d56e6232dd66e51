// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
)

// NewHostCommand returns `annex host`.
func NewHostCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &flags{}
	return complete(&cobra.Command{
		Use:   "host GROUP",
		Short: "Make annex serve an API group that has no objects",
		Long: "Make annex serve an API group of a main cluster that has no objects: it grants annex the right to list the group,\n" +
			"labels its CRDs, and waits until requests reach annex. If the group has no CRDs yet, it only grants the right: label\n" +
			"the CRDs when they are installed. `annex move` is for groups with objects.",
		Example: "  kubectl annex host example.com",
	}, o, in, out, errOut, func(ctx context.Context, s *session) error { return s.host(ctx, *o) })
}

func (s *session) host(ctx context.Context, o flags) error {
	granted := hostRules(s.group)
	if o.printRights {
		return s.printRights(ctx, "host", granted)
	}
	names, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	hosts := false
	if len(names) > 0 {
		if hosts, err = s.mayHost(ctx); err != nil {
			return err
		}
	}
	if o.dryRun {
		s.print("annex can serve %s. Nothing was changed.", s.group)
		return nil
	}
	// The role of a group that was moved has more rights.
	if !hosts {
		if err := s.grant(ctx, "host", granted); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		s.print("The main cluster has no CRDs of %s yet. annex takes them over if they have the label %s=true.", s.group, hostingv1alpha1.HostedLabel)
		return nil
	}
	if err := s.label(ctx, names); err != nil {
		return err
	}
	if !o.wait {
		s.print("To see the state: kubectl get hostedresources -o wide")
		return nil
	}
	return s.waitUntilPublished(ctx, names, o)
}

// mayHost returns an error if annex cannot take over the group, and whether it has done so already.
func (s *session) mayHost(ctx context.Context) (hosts bool, err error) {
	h, err := s.read(ctx)
	if err != nil {
		return false, err
	}
	if h.unfinished != nil {
		return false, fmt.Errorf("host %s: %s of the group is under way (%s)", s.group, named(h.unfinished), h.unfinished.Spec.Operation)
	}
	report, err := s.survey(ctx)
	if err != nil {
		return false, err
	}
	g := report.Groups[0]
	obstacles := obstaclesOf(report)
	switch {
	case g.Move.Verdict == diagnose.MoveHosted:
		hosted, err := s.hosted(ctx)
		if err == nil && len(hosted) == 0 {
			err = fmt.Errorf("host %s: %s, and that is another annex", s.group, strings.Join(obstacles, "; "))
		}
		return true, err
	case len(obstacles) > 0:
		return false, fmt.Errorf("host %s: %s", s.group, strings.Join(obstacles, "; "))
	case g.Objects != nil && *g.Objects > 0:
		return false, fmt.Errorf("host %s: the main cluster has %d objects of it: %s", s.group, *g.Objects, s.command("move"))
	}
	return false, nil
}

// waitUntilPublished waits until requests for all resources reach annex.
func (s *session) waitUntilPublished(ctx context.Context, names []string, o flags) error {
	if o.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		ctx = limited
	}
	reported := map[string]string{}
	err := wait.PollUntilContextCancel(ctx, s.pollInterval, true, func(ctx context.Context) (bool, error) {
		hosted, err := s.hosted(ctx)
		if err != nil {
			if unreachable(err) {
				err = nil
			}
			return false, err
		}
		left := slices.Clone(names)
		for _, resource := range hosted {
			if isPublished(resource) {
				left = slices.DeleteFunc(left, func(name string) bool { return name == resource.Name })
				continue
			}
			if why := waitsFor(resource.Status.Conditions); why != "" && reported[resource.Name] != why {
				reported[resource.Name] = why
				s.print("%s: %s", resource.Name, why)
			}
		}
		return len(left) == 0, nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("host %s: annex does not serve it yet: see kubectl get hostedresources -o wide", s.group)
	case err != nil:
		return fmt.Errorf("host %s: %w", s.group, err)
	}
	s.print("annex serves %s.", s.group)
	return nil
}

// waitsFor returns the message of the condition that a takeover waits for.
func waitsFor(conditions []metav1.Condition) string {
	for _, kind := range []string{hostingv1alpha1.HostedResourceDefinitionSynced, hostingv1alpha1.HostedResourcePublished} {
		if condition := meta.FindStatusCondition(conditions, kind); condition != nil && condition.Status != metav1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}
