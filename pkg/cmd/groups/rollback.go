// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/discovery"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/table"
)

// rollbackFlags are the flags of `annex rollback`.
type rollbackFlags struct {
	flags
	exemptWebhooks bool
	yes            bool
}

// NewRollbackCommand returns `annex rollback`.
func NewRollbackCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &rollbackFlags{}
	cmd := complete(&cobra.Command{
		Use:   "rollback GROUP",
		Short: "Move an API group back to the main cluster, with everything written in annex",
		Long: "Move an API group from annex back to the main cluster, while clients use it. Objects that the main cluster still\n" +
			"has keep their UIDs, those created in annex get new ones, and the owner references of their dependants are changed.\n" +
			"At the end annex removes the labels of the CRDs, and the command takes back the rights that `annex move` gave.\n\n" +
			"If a rollback of the group is under way, the command shows that one; --exempt-webhooks applies to it too.",
		Example: "  kubectl annex rollback example.com\n" +
			"  kubectl annex rollback example.com --exempt-webhooks",
	}, &o.flags, in, out, errOut, func(ctx context.Context, s *session) error { return s.rollback(ctx, *o) })
	fs := cmd.Flags()
	fs.BoolVar(&o.exemptWebhooks, "exempt-webhooks", o.exemptWebhooks, exemptUsage)
	fs.BoolVar(&o.yes, "yes", o.yes, "Grant annex rights for Secrets without a question.")
	return cmd
}

func (s *session) rollback(ctx context.Context, o rollbackFlags) error {
	var found *dependantRights
	return s.run(ctx, steps{
		name: "rollback", flags: o.flags,
		spec: hostingv1alpha1.MigrationSpec{Group: s.group, Operation: hostingv1alpha1.MigrationRollback, ExemptWebhooks: o.exemptWebhooks},
		plan: func(ctx context.Context, h history) (obstacles []string, err error) {
			if obstacles, err = s.planRollback(ctx, h); err != nil || len(obstacles) > 0 {
				return obstacles, err
			}
			s.planHooks(ctx, o.exemptWebhooks)
			if found, err = s.findDependants(ctx); err == nil {
				found.print(s)
			}
			return nil, err
		},
		rights: func(ctx context.Context, use func(rules) error) (err error) {
			names, err := s.definitions(ctx)
			if err != nil {
				return err
			}
			if found == nil {
				if found, err = s.findDependants(ctx); err != nil {
					return err
				}
			}
			wanted := rollbackRules(s.group, names, found.resources)
			if o.exemptWebhooks {
				more, err := s.exemptionRules(ctx)
				if err != nil {
					return err
				}
				wanted = append(wanted, more...)
			}
			if err := s.agreeToSecrets(ctx, o, found); err != nil {
				return err
			}
			return use(wanted)
		},
		done: func(ctx context.Context, h history) (bool, error) {
			hosted, err := s.hosted(ctx)
			return err == nil && h.ended(hostingv1alpha1.MigrationRollback) && !slices.ContainsFunc(hosted, isPublished), err
		},
		finish: func(ctx context.Context) error {
			if err := s.revoke(ctx); err != nil {
				return err
			}
			s.print("The main cluster serves %s.", s.group)
			return nil
		},
	})
}

func isPublished(hosted hostingv1alpha1.HostedResource) bool {
	return meta.IsStatusConditionTrue(hosted.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
}

// planRollback prints what is moved back, and returns what prevents it.
func (s *session) planRollback(ctx context.Context, h history) ([]string, error) {
	hosted, err := s.hosted(ctx)
	if err != nil {
		return nil, err
	}
	if len(hosted) == 0 {
		return []string{"annex has nothing of this group"}, nil
	}
	names, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	s.print("All resources of %s move back together:\n", s.group)
	w := newTable(s.out)
	fmt.Fprintln(w, "RESOURCE\tSTORE\tOBJECTS\tBYTES\tOBJECTS WHEN MOVED")
	var obstacles []string
	for _, resource := range hosted {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", resource.Name, table.OrNone(resource.Spec.StoreName), resource.Status.Objects,
			table.Bytes(resource.Status.Bytes), movedObjects(h.moved, resource.Name))
		if !slices.Contains(names, resource.Name) {
			obstacles = append(obstacles, "the main cluster has no definition "+resource.Name)
		}
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("print the plan: %w", err)
	}
	s.print("\nWhat changes: writes wait a moment during the switch, watches are ended once, and clients list again. Objects\n" +
		"created in annex get new UIDs, and owner references to them are changed.")
	if h.ended(hostingv1alpha1.MigrationFinalize) {
		s.print("The main cluster has no copy since the group was finalized: all objects are created again there, with new UIDs.")
	}
	switch writes, err := s.revisionsAhead(ctx); {
	case err != nil:
		_, _ = fmt.Fprintf(s.errOut, "annex: warning: compare the resource versions of annex and the main cluster: %v\n", err)
	case writes > maincopy.MaxRaise:
		obstacles = append(obstacles, fmt.Sprintf("annex's resource versions are %d above the main cluster's, and annex makes at most %d writes "+
			"there to raise those: move the group back by a backup, with clients stopped", writes, maincopy.MaxRaise))
	case writes > maincopy.RaisedPerSecond*60:
		takes := time.Duration(writes/maincopy.RaisedPerSecond) * time.Second
		s.print("annex's resource versions are %d above the main cluster's: annex makes as many writes there first, which takes\n"+
			"about %s, and longer if clients write much meanwhile.", writes, duration.HumanDuration(takes))
	}
	s.print("")
	return obstacles, nil
}

// revisionsAhead returns how far annex's resource versions are above the main cluster's.
func (s *session) revisionsAhead(ctx context.Context) (int64, error) {
	namespaces, err := s.main.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	main, err := strconv.ParseInt(namespaces.ResourceVersion, 10, 64)
	if err != nil {
		return 0, err
	}
	served, err := discovery.ServerPreferredResources(s.main.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return 0, err
	}
	var ahead int64
	for _, resource := range listable(served, func(group string) bool { return group == s.group }) {
		list, err := s.metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return 0, err
		}
		revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
		if err != nil {
			return 0, err
		}
		ahead = max(ahead, revision-main)
	}
	return ahead, nil
}

// movedObjects returns how many objects of a resource a Move copied.
func movedObjects(moved *hostingv1alpha1.Migration, name string) string {
	if moved == nil {
		return table.Unknown
	}
	for _, resource := range moved.Status.Resources {
		if resource.Name == name {
			return fmt.Sprint(resource.CopiedObjects)
		}
	}
	return table.Unknown
}
