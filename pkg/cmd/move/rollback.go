// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// NewRollbackCommand returns `annex rollback`.
func NewRollbackCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &flags{}
	cmd := runGroup(&cobra.Command{
		Use:   "rollback GROUP",
		Short: "Move an API group back to the main cluster, with everything written in annex",
		Long: "Move an API group from annex back to the main cluster, while clients use it. Objects that the main cluster still\n" +
			"has keep their UIDs, those created in annex get new ones, and the owner references of their dependants are changed.\n" +
			"At the end annex removes the labels of the CRDs, and the command takes back the rights that `annex move` gave.\n\n" +
			"If a rollback of the group is under way, the command shows that one; --exempt-webhooks applies to it too.",
		Example: "  kubectl annex rollback example.com\n" +
			"  kubectl annex rollback example.com --exempt-webhooks",
	}, o, in, out, errOut, func(ctx context.Context, s *session) error { return s.rollback(ctx, *o) })
	o.addExempt(cmd.Flags(), "")
	return cmd
}

func (s *session) rollback(ctx context.Context, o flags) error {
	search := sync.OnceValues(func() ([]schema.GroupResource, error) { return s.dependants(ctx) })
	return s.run(ctx, operation{
		name: "rollback", flags: o,
		spec: hostingv1alpha1.MigrationSpec{Group: s.group, Operation: hostingv1alpha1.MigrationRollback, ExemptWebhooks: o.exemptWebhooks},
		plan: func(ctx context.Context, h history) ([]string, error) {
			if obstacles, err := s.planRollback(ctx, h); err != nil || len(obstacles) > 0 {
				return obstacles, err
			}
			s.planHooks(ctx, o.exemptWebhooks)
			dependants, err := search()
			if err == nil {
				s.planDependants(dependants)
			}
			return nil, err
		},
		confirm: func(ctx context.Context, under *hostingv1alpha1.Migration) error {
			if err := s.agreeToPlan(o, under); err != nil {
				return err
			}
			if dependants, err := search(); err != nil || o.yes || !slices.Contains(dependants, secrets) {
				return err
			}
			return s.agreeToSecrets(ctx)
		},
		rights: func(definitions []string) (rules, error) {
			dependants, err := search()
			return append(maincopy.MoveRules(s.group, definitions...), dependantRules(dependants)...), err
		},
		done: func(served, _ int) bool { return served == 0 },
		finish: func(ctx context.Context) error {
			if err := s.revoke(ctx); err != nil {
				return err
			}
			s.print("The main cluster serves %s.", s.group)
			return nil
		},
	})
}

// planRollback prints what is moved back, and returns what prevents it.
func (s *session) planRollback(ctx context.Context, h history) ([]string, error) {
	hosted, err := s.hosted(ctx)
	if err != nil {
		return nil, err
	}
	if len(hosted) == 0 {
		return []string{nothingInAnnex}, nil
	}
	definitions, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	s.print("All resources of %s move back to the main cluster together:", s.group)
	if err := s.printHosted(h, hosted); err != nil {
		return nil, err
	}
	var obstacles []string
	for _, resource := range hosted {
		if !slices.Contains(definitions, resource.Name) {
			obstacles = append(obstacles, "the main cluster has no definition "+resource.Name)
		}
	}
	s.say("Writes wait a moment during the switch, watches end once, and clients list again. Objects created in annex get new " +
		"UIDs, and owner references to them are changed.")
	if h.ended(hostingv1alpha1.MigrationFinalize) {
		s.say("The main cluster has no copy since the group was finalized: all objects are created again there, with new UIDs.")
	}
	switch writes, err := s.revisionsAhead(ctx); {
	case err != nil:
		s.warn(fmt.Errorf("compare the resource versions of annex and the main cluster: %w", err))
	case writes > maincopy.MaxRaise:
		obstacles = append(obstacles, fmt.Sprintf("annex's resource versions are %d above the main cluster's, and annex makes at most %d writes "+
			"there to raise those: move the group back by a backup, with clients stopped", writes, maincopy.MaxRaise))
	case writes > maincopy.RaisedPerSecond*60:
		takes := time.Duration(writes/maincopy.RaisedPerSecond) * time.Second
		s.say("annex's resource versions are %d above the main cluster's: annex makes as many writes there first, which takes about %s, "+
			"and longer if clients write much meanwhile.", writes, duration.HumanDuration(takes))
	}
	s.print("")
	return obstacles, nil
}

func (s *session) planDependants(of []schema.GroupResource) {
	if len(of) == 0 {
		return
	}
	s.say("Objects of %s own others. To change their owner references, annex gets the right to get, list and patch all of these "+
		"until the end:", s.group)
	names := make([]string, 0, len(of))
	for _, resource := range of {
		names = append(names, resource.String())
	}
	s.say("  %s", strings.Join(names, ", "))
	s.print("")
}

// revisionsAhead returns the distance of annex's resource versions above the main cluster's.
func (s *session) revisionsAhead(ctx context.Context) (int64, error) {
	revision := func(resource schema.GroupVersionResource) (int64, error) {
		list, err := s.Metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(list.ResourceVersion, 10, 64)
	}
	main, err := revision(core.WithResource("namespaces"))
	if err != nil {
		return 0, err
	}
	resources, err := s.ofGroup()
	if err != nil {
		return 0, err
	}
	var ahead int64
	for _, resource := range resources {
		of, err := revision(preferred(resource))
		if err != nil {
			return 0, err
		}
		ahead = max(ahead, of-main)
	}
	return ahead, nil
}

var secrets = schema.GroupResource{Resource: "secrets"}

// dependants returns the resources of the main cluster, outside of the group, that have objects
// owned by objects of the group. It warns of resources that cannot be searched.
func (s *session) dependants(ctx context.Context) ([]schema.GroupResource, error) {
	served, unknown, err := s.served(func(group string) bool { return group != s.group })
	if err != nil {
		return nil, err
	}
	var found []schema.GroupResource
	for _, resource := range served {
		owned, err := s.hasDependant(ctx, preferred(resource))
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			unknown = append(unknown, resource.String())
		case owned:
			found = append(found, resource.GroupResource)
		}
	}
	if slices.Sort(unknown); len(unknown) > 0 {
		s.warn(fmt.Errorf("cannot find dependants of %s among %s", s.group, strings.Join(unknown, ", ")))
	}
	slices.SortFunc(found, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return found, nil
}

// hasDependant reports whether an object of a resource has an owner of the group.
func (s *session) hasDependant(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	found := errors.New("found")
	err := s.each(ctx, resource, func(of *metav1.PartialObjectMetadata) error {
		if slices.ContainsFunc(of.OwnerReferences, func(owner metav1.OwnerReference) bool { return strings.HasPrefix(owner.APIVersion, s.group+"/") }) {
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// agreeToSecrets returns an error unless annex has rights for all Secrets of the cluster, or the user agrees that it gets
// them.
func (s *session) agreeToSecrets(ctx context.Context) error {
	role, err := s.Kube.RbacV1().ClusterRoles().Get(ctx, hostingv1alpha1.HostedRoleName(s.group), metav1.GetOptions{})
	if err == nil {
		if covers, _ := validation.Covers(role.Rules, dependantRules([]schema.GroupResource{secrets})); covers {
			return nil
		}
	}
	return s.agree("Let annex get, list and patch all Secrets of the cluster until the end?",
		"without rights for Secrets, those are deleted whose owners were created in annex: answer y, or give --yes")
}
