// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/health"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/table"
)

// report has the content of -o json.
type report struct {
	Server         health.Server    `json:"server"`
	Healthy        bool             `json:"healthy"`
	NeedsAttention []health.Finding `json:"needsAttention"`
	Groups         []group          `json:"groups"`
	Stores         []store          `json:"stores"`
	Migrations     []migration      `json:"migrations"`
	StaticSources  []staticSource   `json:"staticSources"`

	// known is false if annex's objects could not be read.
	known bool
}

// group sums up the resources of an API group.
type group struct {
	Name      string   `json:"name"`
	Resources int      `json:"resources"`
	Objects   int64    `json:"objects"`
	Bytes     int64    `json:"bytes"`
	Stored    int64    `json:"storedBytes"`
	Cached    int64    `json:"cachedBytes"`
	Stores    []string `json:"stores"`
	// Published counts the resources that the main cluster sends to annex. It is absent in a standalone annex.
	Published *int `json:"published,omitempty"`
}

type store struct {
	Name      string                 `json:"name"`
	Ready     metav1.ConditionStatus `json:"ready"`
	Resources int32                  `json:"resources"`
	Objects   int64                  `json:"objects"`
	InUse     string                 `json:"sizeInUse"`
	Size      string                 `json:"size"`
	Quota     string                 `json:"quota"`
	// DiskFree is the free space of annex's volume, on which only the etcd inside annex is.
	DiskFree string `json:"diskFree,omitempty"`
	Version  string `json:"version"`
	// Members counts the members of the etcd, and ReadyMembers those that answer.
	Members      int `json:"members"`
	ReadyMembers int `json:"readyMembers"`
	// LastBackup has the time at which a client last read a complete backup.
	LastBackup *metav1.Time `json:"lastBackupTime,omitempty"`
}

// migration is one that is not finished.
type migration struct {
	Name    string                         `json:"name"`
	Moved   string                         `json:"moved"`
	From    string                         `json:"from"`
	To      string                         `json:"to"`
	Phase   hostingv1alpha1.MigrationPhase `json:"phase"`
	Copied  int64                          `json:"copiedObjects"`
	Objects int64                          `json:"objects"`
	Created metav1.Time                    `json:"created"`
	// percent has Copied of Objects for the table.
	percent string
}

type staticSource struct {
	Name     string                 `json:"name"`
	Location string                 `json:"location"`
	Read     metav1.ConditionStatus `json:"read"`
	Objects  int64                  `json:"objects"`
	Applied  int64                  `json:"applied"`
	Orphaned int64                  `json:"orphaned"`
}

func newReport(found *health.Report) *report {
	attention := append([]health.Finding{}, found.Attention()...)
	// The worst comes first.
	rank := map[health.Level]int{health.LevelFail: 0, health.LevelWarn: 1, health.LevelInfo: 2}
	slices.SortStableFunc(attention, func(a, b health.Finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	objects := cmp.Or(found.Objects, &health.Objects{})
	r := &report{
		Server: found.Server, NeedsAttention: attention, Groups: groupsOf(objects.Resources), known: found.Objects != nil,
		Stores: []store{}, Migrations: []migration{}, StaticSources: []staticSource{},
	}
	r.Healthy = health.Failed(attention) == 0
	for i := range objects.Stores {
		r.Stores = append(r.Stores, storeOf(&objects.Stores[i]))
	}
	for i := range objects.Migrations {
		if m := &objects.Migrations[i]; !m.Status.Phase.Finished() {
			r.Migrations = append(r.Migrations, migration{m.Name, m.Moved(), m.From(), m.To(), m.Status.Phase, m.Status.CopiedObjects, m.Status.Objects, m.CreationTimestamp, m.Copied()})
		}
	}
	for i := range objects.StaticSources {
		s := &objects.StaticSources[i]
		r.StaticSources = append(r.StaticSources, staticSource{
			s.Name, s.Spec.Location, statusOf(s.Status.Conditions, hostingv1alpha1.StaticSourceRead), s.Status.Objects, s.Status.Applied, s.Status.Orphaned,
		})
	}
	return r
}

func groupsOf(resources []hostingv1alpha1.HostedResource) []group {
	groups, stores := map[string]*group{}, map[string]sets.Set[string]{}
	for i := range resources {
		resource := &resources[i]
		name := schema.ParseGroupResource(resource.Name).Group
		g := groups[name]
		if g == nil {
			g, stores[name] = &group{Name: name}, sets.New[string]()
			groups[name] = g
		}
		g.Resources++
		g.Objects += resource.Status.Objects
		g.Bytes += resource.Status.Bytes
		g.Stored += resource.Status.StoredBytes
		g.Cached += resource.Status.CachedBytes
		stores[name].Insert(table.OrNone(resource.Spec.StoreName))
		// A standalone annex publishes nothing.
		if published := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished); published != nil {
			if g.Published == nil {
				g.Published = new(int)
			}
			if published.Status == metav1.ConditionTrue {
				*g.Published++
			}
		}
	}
	sorted := make([]group, 0, len(groups))
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		groups[name].Stores = sets.List(stores[name])
		sorted = append(sorted, *groups[name])
	}
	return sorted
}

func storeOf(of *hostingv1alpha1.Store) store {
	s := store{
		Name: of.Name, Ready: statusOf(of.Status.Conditions, hostingv1alpha1.StoreReady), Resources: of.Status.Resources, Objects: of.Status.Objects,
		InUse: table.Quantity(of.Status.SizeInUse), Size: table.Quantity(of.Status.DatabaseSize), Quota: table.Quantity(of.Status.Quota),
		Version: of.Status.Version, Members: len(of.Status.Members), LastBackup: of.Status.LastBackupTime,
	}
	if of.Status.DiskFree != nil {
		s.DiskFree = table.Quantity(of.Status.DiskFree)
	}
	for _, member := range of.Status.Members {
		if member.Version != "" {
			s.ReadyMembers++
		}
	}
	return s
}

func statusOf(conditions []metav1.Condition, kind string) metav1.ConditionStatus {
	if condition := meta.FindStatusCondition(conditions, kind); condition != nil {
		return condition.Status
	}
	return metav1.ConditionUnknown
}

func (r *report) print(out io.Writer, wide bool) error {
	w := output.NewTable(out)
	r.printServer(w)
	if r.known {
		r.printGroups(w, wide)
		r.printStores(w, wide)
		r.printMigrations(w, wide)
		r.printStaticSources(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(r.NeedsAttention) == 0 {
		_, err := fmt.Fprintln(out, "Nothing needs attention.")
		return err
	}
	if _, err := fmt.Fprintln(out, "NEEDS ATTENTION"); err != nil {
		return err
	}
	return health.Print(out, r.NeedsAttention)
}

func (r *report) printServer(w io.Writer) {
	s := &r.Server
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", name, value)
		}
	}
	row("Server", s.Address)
	row("Main cluster", s.MainCluster)
	row("annex", strings.Join(slices.DeleteFunc([]string{s.Version, s.Mode}, func(known string) bool { return known == "" }), ", "))
	row("Leader", s.Leader)
	if s.Replicas > 0 {
		row("Replicas", fmt.Sprintf("%d of %d ready", s.ReadyReplicas, s.Replicas))
	}
	if s.CertificateExpires != nil {
		row("Certificates", "valid until "+s.CertificateExpires.UTC().Format("2006-01-02"))
	}
	for i := range r.Stores {
		if free := r.Stores[i].DiskFree; free != "" {
			row("Disk", free+" free")
		}
	}
	fmt.Fprintln(w)
}

func (r *report) printGroups(w io.Writer, wide bool) {
	if len(r.Groups) == 0 {
		next := "Create a CustomResourceDefinition."
		if r.Server.MainCluster != "" {
			next = "`kubectl annex diagnose` shows which groups can move."
		}
		fmt.Fprintf(w, "annex serves no custom resources. %s\n\n", next)
		return
	}
	aggregated := slices.ContainsFunc(r.Groups, func(g group) bool { return g.Published != nil })
	// PUBLISHED counts the resources too.
	t := output.Columns{{"GROUP", true}, {"RESOURCES", wide || !aggregated}, {"OBJECTS", true}, {"BYTES", true}, {"STORED", true}, {"CACHED", wide}, {"STORES", true}, {"PUBLISHED", aggregated}}
	t.Header(w)
	for i := range r.Groups {
		g := &r.Groups[i]
		published := 0
		if g.Published != nil {
			published = *g.Published
		}
		t.Row(w, g.Name, g.Resources, g.Objects, table.Bytes(g.Bytes), table.Bytes(g.Stored), table.Bytes(g.Cached), strings.Join(g.Stores, ","), fmt.Sprintf("%d of %d", published, g.Resources))
	}
	fmt.Fprintln(w)
}

func (r *report) printStores(w io.Writer, wide bool) {
	t := output.Columns{{"STORE", true}, {"READY", true}, {"MEMBERS", true}, {"RESOURCES", wide}, {"OBJECTS", true}, {"IN USE", true}, {"SIZE", wide}, {"QUOTA", true}, {"BACKUP", true}, {"VERSION", wide}}
	t.Header(w)
	for i := range r.Stores {
		s := &r.Stores[i]
		backup := table.None
		if s.LastBackup != nil {
			backup = table.Since(s.LastBackup.Time)
		}
		t.Row(w, s.Name, s.Ready, fmt.Sprintf("%d of %d", s.ReadyMembers, s.Members), s.Resources, s.Objects, s.InUse, s.Size, s.Quota, backup, s.Version)
	}
	fmt.Fprintln(w)
}

func (r *report) printMigrations(w io.Writer, wide bool) {
	if len(r.Migrations) == 0 {
		return
	}
	t := output.Columns{{"MIGRATION", true}, {"RESOURCE", wide}, {"FROM", wide}, {"TO", true}, {"PHASE", true}, {"OBJECTS", wide}, {"COPIED", true}, {"AGE", true}}
	t.Header(w)
	for i := range r.Migrations {
		m := &r.Migrations[i]
		t.Row(w, m.Name, m.Moved, m.From, m.To, m.Phase, m.Objects, m.percent, table.Since(m.Created.Time))
	}
	fmt.Fprintln(w)
}

func (r *report) printStaticSources(w io.Writer) {
	if len(r.StaticSources) == 0 {
		return
	}
	t := output.Columns{{"STATIC SOURCE", true}, {"LOCATION", true}, {"READ", true}, {"APPLIED", true}, {"ORPHANED", true}}
	t.Header(w)
	for i := range r.StaticSources {
		s := &r.StaticSources[i]
		t.Row(w, s.Name, table.OrNone(s.Location), s.Read, fmt.Sprintf("%d of %d", s.Applied, s.Objects), s.Orphaned)
	}
	fmt.Fprintln(w)
}
