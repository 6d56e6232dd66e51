// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status implements `annex status` and `annex top`, which show what annex serves.
package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/table"
)

// NewCommand returns `annex status`.
func NewCommand(out io.Writer) *cobra.Command {
	var options login.Options
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the groups that annex serves, its Stores, moves under way, static sources, and what needs attention",
		Long: "Show the groups that annex serves and the Stores that hold them, Migrations under way, StaticSources, and each\n" +
			"condition that reports a problem, with what to do. It changes nothing. For problems between a main cluster and annex see the\n" +
			"command doctor.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clients, err := options.ConnectAnnex(cmd.Context(), "annex-status")
			if err != nil {
				return err
			}
			found, err := read(cmd.Context(), clients)
			if err != nil {
				return err
			}
			return found.print(out)
		},
	}
	options.AddFlags(cmd.Flags(), login.AnnexOrMain)
	return cmd
}

type objects struct {
	Resources     []hostingv1alpha1.HostedResource
	Stores        []hostingv1alpha1.Store
	Migrations    []hostingv1alpha1.Migration
	StaticSources []hostingv1alpha1.StaticSource
}

func read(ctx context.Context, clients *login.Clients) (*objects, error) {
	found, err := scheduler.ReadCluster(ctx, clients.Annex.HostingV1alpha1())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clients.Config.Host, err)
	}
	static, err := clients.Annex.HostingV1alpha1().StaticSources().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		static, err = &hostingv1alpha1.StaticSourceList{}, nil // an older annex
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: list StaticSources: %w", clients.Config.Host, err)
	}
	return &objects{found.Resources, found.Stores, found.Migrations, static.Items}, nil
}

func (o *objects) print(out io.Writer) error {
	w := output.NewTable(out)
	o.printGroups(w)
	fmt.Fprintln(w)
	o.printStores(w)
	fmt.Fprintln(w)
	o.printMigrations(w)
	o.printStaticSources(w)
	printProblems(w, o.problems())
	return w.Flush()
}

type group struct {
	resources              int
	objects, bytes, stored int64
	stores                 sets.Set[string]
	published              int
}

func (o *objects) groups() map[string]*group {
	groups := map[string]*group{}
	for i := range o.Resources {
		resource := &o.Resources[i]
		name := schema.ParseGroupResource(resource.Name).Group
		g := groups[name]
		if g == nil {
			g = &group{stores: sets.New[string]()}
			groups[name] = g
		}
		g.resources++
		g.objects += resource.Status.Objects
		g.bytes += resource.Status.Bytes
		g.stored += resource.Status.StoredBytes
		g.stores.Insert(table.OrNone(resource.Spec.StoreName))
		if meta.IsStatusConditionTrue(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished) {
			g.published++
		}
	}
	return groups
}

func (o *objects) printGroups(w io.Writer) {
	groups := o.groups()
	if len(groups) == 0 {
		fmt.Fprintln(w, "annex serves no custom resources. Create a CustomResourceDefinition.")
		return
	}
	// A standalone annex publishes nothing.
	aggregated := slices.ContainsFunc(o.Resources, func(resource hostingv1alpha1.HostedResource) bool {
		return meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished) != nil
	})
	header := "GROUP\tRESOURCES\tOBJECTS\tBYTES\tSTORED\tSTORES"
	if aggregated {
		header += "\tPUBLISHED"
	}
	fmt.Fprintln(w, header)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s", name, g.resources, g.objects, table.Bytes(g.bytes), table.Bytes(g.stored), strings.Join(sets.List(g.stores), ","))
		if aggregated {
			fmt.Fprintf(w, "\t%d of %d", g.published, g.resources)
		}
		fmt.Fprintln(w)
	}
}

func (o *objects) printStores(w io.Writer) {
	fmt.Fprintln(w, "STORE\tREADY\tRESOURCES\tOBJECTS\tIN USE\tQUOTA")
	for i := range o.Stores {
		store := &o.Stores[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", store.Name, statusOf(store.Status.Conditions, hostingv1alpha1.StoreReady), store.Status.Resources, store.Status.Objects,
			table.Quantity(store.Status.SizeInUse), table.Quantity(store.Status.Quota))
	}
}

func statusOf(conditions []metav1.Condition, kind string) metav1.ConditionStatus {
	if condition := meta.FindStatusCondition(conditions, kind); condition != nil {
		return condition.Status
	}
	return metav1.ConditionUnknown
}

func (o *objects) printMigrations(w io.Writer) {
	underWay := slices.DeleteFunc(slices.Clone(o.Migrations), func(m hostingv1alpha1.Migration) bool { return m.Status.Phase.Finished() })
	if len(underWay) == 0 {
		return
	}
	fmt.Fprintln(w, "MIGRATION\tRESOURCE\tFROM\tTO\tPHASE\tCOPIED\tAGE")
	for i := range underWay {
		m := &underWay[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%s\n", m.Name, m.Moved(), m.From(), m.To(),
			m.Status.Phase, m.Status.CopiedObjects, m.Status.Objects, table.Since(m.CreationTimestamp.Time))
	}
	fmt.Fprintln(w)
}

func (o *objects) printStaticSources(w io.Writer) {
	if len(o.StaticSources) == 0 {
		return
	}
	fmt.Fprintln(w, "STATIC SOURCE\tLOCATION\tREAD\tOBJECTS\tAPPLIED\tORPHANED")
	for i := range o.StaticSources {
		source := &o.StaticSources[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\n", source.Name, table.OrNone(source.Spec.Location),
			statusOf(source.Status.Conditions, hostingv1alpha1.StaticSourceRead), source.Status.Objects, source.Status.Applied, source.Status.Orphaned)
	}
	fmt.Fprintln(w)
}

type problem struct {
	object    string
	condition metav1.Condition
}

// problems returns the problems of Stores, then of resources that these do not cause, Migrations
// that failed or are tried again, and StaticSources.
func (o *objects) problems() []problem {
	var found []problem
	notReady := sets.New[string]()
	for i := range o.Stores {
		store := &o.Stores[i]
		for _, condition := range store.Status.Conditions {
			switch {
			case condition.Type == hostingv1alpha1.StoreReady && condition.Status != metav1.ConditionTrue:
				notReady.Insert(store.Name)
			case condition.Type == hostingv1alpha1.StoreUnderPressure && condition.Status == metav1.ConditionTrue:
			default:
				continue
			}
			found = append(found, problem{"store/" + store.Name, condition})
		}
	}
	for i := range o.Resources {
		resource := &o.Resources[i]
		for _, condition := range ProblemsOf(resource.Status.Conditions) {
			if condition.Type == hostingv1alpha1.HostedResourceStoreReady && notReady.Has(resource.Spec.StoreName) {
				continue
			}
			found = append(found, problem{"hostedresource/" + resource.Name, condition})
		}
	}
	for i := range o.Migrations {
		migration := &o.Migrations[i]
		complete := meta.FindStatusCondition(migration.Status.Conditions, hostingv1alpha1.MigrationComplete)
		if complete != nil && (migration.Status.Phase == hostingv1alpha1.MigrationFailed || complete.Reason == hostingv1alpha1.MigrationRetrying) {
			found = append(found, problem{"migration/" + migration.Name, *complete})
		}
	}
	for i := range o.StaticSources {
		source := &o.StaticSources[i]
		for _, condition := range source.Status.Conditions {
			if condition.Status != metav1.ConditionTrue {
				found = append(found, problem{"staticsource/" + source.Name, condition})
			}
		}
	}
	return found
}

// ProblemsOf returns the conditions of a HostedResource that are not True, and Ready, which
// summarizes others, only if it is the only one.
func ProblemsOf(conditions []metav1.Condition) []metav1.Condition {
	bad := slices.DeleteFunc(slices.Clone(conditions), func(condition metav1.Condition) bool {
		return condition.Status == metav1.ConditionTrue
	})
	if len(bad) > 1 {
		bad = slices.DeleteFunc(bad, func(condition metav1.Condition) bool { return condition.Type == hostingv1alpha1.HostedResourceReady })
	}
	slices.SortFunc(bad, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return bad
}

func printProblems(w io.Writer, problems []problem) {
	if len(problems) == 0 {
		fmt.Fprintln(w, "Nothing needs attention.")
		return
	}
	fmt.Fprintln(w, "NEEDS ATTENTION\tCONDITION\tREASON\tSINCE\tMESSAGE")
	for _, p := range problems {
		c := p.condition
		fmt.Fprintf(w, "%s\t%s=%s\t%s\t%s\t%s\n", p.object, c.Type, c.Status, c.Reason, table.Since(c.LastTransitionTime.Time), strings.ReplaceAll(c.Message, "\n", " "))
	}
}
