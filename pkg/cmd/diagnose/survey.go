// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	aggregatedgroup "github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
	migrationsPath  = "/apis/" + hostingv1alpha1.GroupName + "/v1alpha1/migrations"
)

// Rights that are not for the objects of a group.
const (
	listDefinitions = "list customresourcedefinitions.apiextensions.k8s.io"
	listAPIServices = "list apiservices.apiregistration.k8s.io"
	listMigrations  = "list migrations." + hostingv1alpha1.GroupName
	getMetrics      = "get /metrics"
)

// ErrNoDefinition is the error of Survey for a group that the cluster does not define.
var ErrNoDefinition = errors.New("no CustomResourceDefinition has this group")

type survey struct {
	lister   lister
	measured *measurements
	report   *Report
	groups   map[string]*group
	// migrations are the latest of each group that annex serves.
	migrations map[string]*hostingv1alpha1.Migration
	// definitionsErr and apiServicesErr say that these are not known.
	definitionsErr, apiServicesErr error
}

// group is a group with what the verdict depends on.
type group struct {
	*Group
	// definitions have no schemas.
	definitions []*apiextensionsv1.CustomResourceDefinition
	apiServices []*apiregistrationv1.APIService
	// refused are reasons for which annex would refuse definitions.
	refused []string
	// hostedBy is the annex that serves hostedVersion of the group, or empty.
	hostedBy, hostedVersion string
}

func newSurvey(server string, client restclient.Interface) *survey {
	return &survey{lister: lister{client}, report: &Report{Server: server, Groups: []*Group{}}, groups: map[string]*group{}}
}

// Options of a survey.
type Options struct {
	// Group is the only group of the report, if it is set.
	Group string
	// Window is the time for which rates are measured. They are unknown if it is 0.
	Window time.Duration
	// SortBy is one of SortKeys, or empty.
	SortBy string
}

// Survey reports on a cluster. It fails if nothing can be read.
func Survey(ctx context.Context, server string, client restclient.Interface, o Options, errOut io.Writer) (*Report, error) {
	s := newSurvey(server, client)
	measured, err := readMeasurements(ctx, client)
	s.measured = measured
	s.record(getMetrics, err)
	if s.definitionsErr = s.readDefinitions(ctx, o.Group); s.definitionsErr != nil {
		if !apierrors.IsForbidden(s.definitionsErr) || measured == nil {
			return nil, fmt.Errorf("read the CustomResourceDefinitions of %s: %w", server, s.definitionsErr)
		}
		s.takeMeasuredGroups(o.Group)
	}
	s.record(listDefinitions, s.definitionsErr)
	if o.Group != "" && s.groups[o.Group] == nil {
		return nil, fmt.Errorf("--group %q: %w", o.Group, ErrNoDefinition)
	}
	s.apiServicesErr = s.readAPIServices(ctx)
	s.record(listAPIServices, s.apiServicesErr)
	s.record(listMigrations, s.readMigrations(ctx))
	if err := s.measure(ctx, errOut); err != nil {
		return nil, err
	}
	if o.Window > 0 {
		if err := s.watch(ctx, o.Window, errOut); err != nil {
			return nil, err
		}
	}
	for _, g := range s.groups {
		for _, r := range g.Resources {
			g.add(r.Usage)
		}
		g.Move = s.move(g)
		s.report.Groups = append(s.report.Groups, g.Group)
	}
	s.report.sortBy(cmp.Or(o.SortBy, SortKeys[0]))
	s.addUp(o.Group == "")
	if len(s.report.MissingRights) > 0 {
		s.report.GrantCommand = grantCommand(ctx, client)
	}
	return s.report, nil
}

// record reports an error as a missing right or another problem.
func (s *survey) record(right string, err error) {
	switch {
	case apierrors.IsForbidden(err):
		s.report.MissingRights = append(s.report.MissingRights, right)
	case err != nil:
		s.report.Problems = append(s.report.Problems, strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

func (s *survey) group(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = &group{Group: &Group{Name: name}}
		s.groups[name] = g
	}
	return g
}

func (s *survey) readDefinitions(ctx context.Context, only string) error {
	return each(ctx, s.lister, definitionsPath, "CustomResourceDefinition", func(crd *apiextensionsv1.CustomResourceDefinition) {
		if only != "" && crd.Spec.Group != only {
			return
		}
		g := s.group(crd.Spec.Group)
		if err := aggregatedgroup.Validate(ctx, crd); err != nil {
			g.refused = append(g.refused, fmt.Sprintf("annex refuses the definition %s: %v", crd.Name, err))
		}
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Schema = nil // it may have megabytes
		}
		g.definitions = append(g.definitions, crd)
		g.Resources = append(g.Resources, resourceOf(crd))
	})
}

func resourceOf(crd *apiextensionsv1.CustomResourceDefinition) *Resource {
	r := &Resource{Name: crd.Spec.Names.Plural, Scope: string(crd.Spec.Scope)}
	for _, version := range crd.Spec.Versions {
		if version.Served {
			r.Versions = append(r.Versions, version.Name)
		}
		if version.Storage {
			r.StorageVersion = version.Name
		}
	}
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
		return r
	}
	if service := conversion.Webhook.ClientConfig.Service; service != nil {
		r.ConversionWebhook = service.Namespace + "/" + service.Name
	} else if url := conversion.Webhook.ClientConfig.URL; url != nil {
		r.ConversionWebhook = *url
	}
	return r
}

// takeMeasuredGroups takes the groups of kube-apiserver's metrics that are not built in, for users
// that may not list definitions.
func (s *survey) takeMeasuredGroups(only string) {
	for resource, known := range s.measured.resources {
		builtIn := !strings.Contains(resource.Group, ".") || scheme.Scheme.IsGroupRegistered(resource.Group) ||
			resource.Group == apiextensionsv1.GroupName || resource.Group == apiregistrationv1.GroupName
		if builtIn || known.objects == nil || only != "" && resource.Group != only {
			continue
		}
		g := s.group(resource.Group)
		g.Resources = append(g.Resources, &Resource{Name: resource.Resource})
	}
}

func (s *survey) readAPIServices(ctx context.Context) error {
	return each(ctx, s.lister, apiServicesPath, "APIService", func(current *apiregistrationv1.APIService) {
		g := s.groups[current.Spec.Group]
		if g == nil {
			return
		}
		g.apiServices = append(g.apiServices, current)
		if by := current.Labels[hostingv1alpha1.PublishedByLabel]; by != "" {
			g.hostedBy, g.hostedVersion = by, current.Spec.Version
		}
	})
}

// readMigrations finds the copies that the cluster keeps of the groups that annex serves.
func (s *survey) readMigrations(ctx context.Context) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.groups)), func(g *group) bool { return g.hostedBy != "" }) {
		return nil
	}
	var all []hostingv1alpha1.Migration
	err := each(ctx, s.lister, migrationsPath, "Migration", func(m *hostingv1alpha1.Migration) { all = append(all, *m) })
	if err == nil {
		s.migrations = hostingv1alpha1.LatestMigrations(all)
	}
	return err
}

// measure fills in what each resource uses.
func (s *survey) measure(ctx context.Context, errOut io.Writer) error {
	bar := output.NewBar(errOut, "Reading")
	defer bar.End()
	var done, total int64
	for _, g := range s.groups {
		total += int64(len(g.Resources))
	}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[name]
		slices.SortFunc(g.Resources, func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) })
		forbidden := []string{}
		for _, r := range g.Resources {
			bar.ShowCount(done, total, "resources")
			done++
			s.measureResource(ctx, g, r)
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.Forbidden {
				forbidden = append(forbidden, r.Name+"."+name)
			}
		}
		if len(forbidden) == len(g.Resources) {
			forbidden = []string{"*." + name}
		}
		if len(forbidden) > 0 {
			s.report.MissingRights = append(s.report.MissingRights, "list "+strings.Join(forbidden, ","))
		}
	}
	return nil
}

// measureResource counts the objects that the cluster itself has. What may not be listed, it takes from the metrics.
func (s *survey) measureResource(ctx context.Context, g *group, r *Resource) {
	var known measured
	if s.measured != nil {
		known = s.measured.resources[schema.GroupResource{Group: g.Name, Resource: r.Name}]
		r.Watches = &known.watches
	}
	if g.hostedBy != "" && g.takeCopy(s.migrations[g.Name], r, known) {
		return
	}
	if path := g.listPath(r); path != "" {
		found, err := s.lister.read(ctx, path, known)
		if err == nil {
			r.Objects, r.Bytes, r.MemoryBytes, r.Source = &found.objects, &found.bytes, new(inCaches(found.memory, r)), found.source
			return
		}
		r.Forbidden = apierrors.IsForbidden(err)
		if !r.Forbidden {
			s.record("", err)
		}
	}
	if known.objects != nil {
		r.Objects, r.Bytes, r.MemoryBytes, r.Source = known.objects, known.bytes, typicalMemory(known.bytes, r), SourceMetrics
		g.FrozenCopy = g.FrozenCopy || g.hostedBy != "" && *known.objects > 0
	}
}

// takeCopy takes the numbers of the copy that the cluster keeps since the group was moved, and cannot list. It returns false if
// the latest Migration does not tell: it is gone, or under way, when the cluster serves the copy in a version of its own.
func (g *group) takeCopy(m *hostingv1alpha1.Migration, r *Resource, known measured) bool {
	if m == nil || m.Status.Phase != hostingv1alpha1.MigrationCompleted {
		return false
	}
	r.Objects, r.Bytes, r.MemoryBytes, r.Source = new(int64), new(int64), new(int64), SourceMigration
	for _, moved := range m.Status.Resources {
		if !m.KeepsCopy() || moved.Name != r.Name+"."+g.Name || moved.Objects == 0 {
			continue
		}
		bytes, ok := known.bytesOf(moved.Objects)
		if !ok {
			bytes = moved.CopiedBytes
		}
		g.FrozenCopy = true
		r.Objects, r.Bytes, r.MemoryBytes = new(moved.Objects), &bytes, typicalMemory(&bytes, r)
	}
	return true
}

func isPositive(value *int64) bool { return value != nil && *value > 0 }

// listPath returns the path of the version whose list is the cheapest, or "" if the cluster itself
// serves none: a list of another server has no objects of the cluster's etcd.
func (g *group) listPath(r *Resource) string {
	listed := ""
	for _, version := range r.Versions {
		elsewhere := slices.ContainsFunc(g.apiServices, func(current *apiregistrationv1.APIService) bool {
			return current.Spec.Version == version && current.Spec.Service != nil
		})
		if !elsewhere && (listed == "" || version == r.StorageVersion) {
			listed = version
		}
	}
	if listed == "" {
		return ""
	}
	return "/apis/" + g.Name + "/" + listed + "/" + r.Name
}
