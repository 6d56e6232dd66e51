// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

// Report is the output of `annex diagnose -o json`. A value that is null is not known.
type Report struct {
	// Server is the address of the cluster.
	Server string `json:"server"`
	// Groups have a CRD each, the largest first.
	Groups []*Group `json:"groups"`
	// CustomResources is the sum of the groups.
	CustomResources Usage `json:"customResources"`
	// Movable is the sum of the groups that can move.
	Movable Usage `json:"movable"`
	// AllObjects are the objects in etcd, of any kind, and AllBytes their sizes.
	AllObjects *int64 `json:"allObjects"`
	AllBytes   *int64 `json:"allBytes"`
	// EtcdBytes is the size of etcd's files.
	EtcdBytes *int64 `json:"etcdBytes"`
	// WindowSeconds is the time for which rates were measured, or 0.
	WindowSeconds float64 `json:"windowSeconds,omitempty"`
	// WritesPerSecond is the rate of etcd's transactions in the window, of objects of any kind.
	WritesPerSecond *float64 `json:"writesPerSecond,omitempty"`
	// MissingRights are those that would make the report complete. GrantCommand grants them, if an administrator runs it.
	MissingRights []string `json:"missingRights,omitempty"`
	GrantCommand  string   `json:"grantCommand,omitempty"`
	// Problems are other reasons for unknown values.
	Problems []string `json:"problems,omitempty"`
}

// Usage counts objects and what they use.
type Usage struct {
	// Objects is their number in etcd.
	Objects *int64 `json:"objects"`
	// Bytes is the size of their values in etcd, without history and free space.
	Bytes *int64 `json:"bytes"`
	// MemoryBytes is the estimated memory of each kube-apiserver for them.
	MemoryBytes *int64 `json:"memoryBytes"`
	// Watches are open at the kube-apiserver that answered.
	Watches *int64 `json:"watches"`
	// Rates are measured in the window.
	Rates `json:",inline"`
}

// Rates are measured in a window. They are nil without one.
type Rates struct {
	// WritesPerSecond are the successful requests to the kube-apiserver that answered.
	WritesPerSecond *float64 `json:"writesPerSecond,omitempty"`
	// ObjectsPerHour and BytesPerHour are the growth. A size is estimated from the mean of the objects.
	ObjectsPerHour *float64 `json:"objectsPerHour,omitempty"`
	BytesPerHour   *float64 `json:"bytesPerHour,omitempty"`
}

// Group is an API group.
type Group struct {
	Name  string `json:"name"`
	Usage `json:",inline"`
	// Share is the part of AllBytes, or of the custom resources if AllBytes is null.
	Share *float64 `json:"share"`
	// FrozenCopy reports that annex serves the group, and that the objects are the copy that the cluster keeps.
	FrozenCopy bool `json:"frozenCopy,omitempty"`
	// Move reports whether annex can take over the group.
	Move      Move        `json:"move"`
	Resources []*Resource `json:"resources"`
}

// Resource is a kind of a group.
type Resource struct {
	Name  string `json:"name"`
	Scope string `json:"scope,omitempty"`
	// Versions are those that are served. StorageVersion is written to etcd.
	Versions       []string `json:"versions,omitempty"`
	StorageVersion string   `json:"storageVersion,omitempty"`
	// ConversionWebhook is its URL, or NAMESPACE/NAME of its Service.
	ConversionWebhook string `json:"conversionWebhook,omitempty"`
	Usage             `json:",inline"`
	// Source of Objects and Bytes.
	Source Source `json:"source,omitempty"`
	// Forbidden reports that the objects may not be listed.
	Forbidden bool `json:"forbidden,omitempty"`
}

// Source is the origin of numbers.
type Source string

const (
	// SourceMetrics are the exact number of objects, and the mean of their sizes in the metrics of kube-apiserver, which are
	// about a minute old. Without the right to list them the number is from the metrics too.
	SourceMetrics Source = "Metrics"
	// SourceList is a list of all objects.
	SourceList Source = "List"
	// SourceSample is the exact number of objects and the sizes of the first of them.
	SourceSample Source = "Sample"
	// SourceMigration is the Migration that moved the group to annex.
	SourceMigration Source = "Migration"
)

// Move reports whether this version can move a group to annex.
type Move struct {
	Verdict Verdict `json:"verdict"`
	// Reasons explain any other verdict than Yes.
	Reasons []string `json:"reasons,omitempty"`
	// Commands move the group.
	Commands []string `json:"commands,omitempty"`
}

// Verdict answers that.
type Verdict string

const (
	// MoveYes is for groups that can move, with their objects if there are any.
	MoveYes Verdict = "Yes"
	// MoveNo is for groups that annex cannot take over.
	MoveNo Verdict = "No"
	// MoveHosted is for groups that annex serves already.
	MoveHosted Verdict = "Hosted"
	// MoveUnknown is for groups that may not be read enough.
	MoveUnknown Verdict = "Unknown"
)

func (u *Usage) add(other Usage) {
	u.Objects = sum(u.Objects, other.Objects)
	u.Bytes = sum(u.Bytes, other.Bytes)
	u.MemoryBytes = sum(u.MemoryBytes, other.MemoryBytes)
	u.Watches = sum(u.Watches, other.Watches)
	u.WritesPerSecond = sum(u.WritesPerSecond, other.WritesPerSecond)
	u.ObjectsPerHour = sum(u.ObjectsPerHour, other.ObjectsPerHour)
	u.BytesPerHour = sum(u.BytesPerHour, other.BytesPerHour)
}

func sum[N int64 | float64](a, b *N) *N {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return new(*a + *b)
	}
}
