// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// Utilization is the utilization of a limit.
type Utilization struct {
	// Namespace is empty for the limit of the whole resource.
	Namespace   string
	Name        hostingv1alpha1.ResourceName
	Used, Limit int64
}

// IsFull reports whether the limit is reached.
func (f Utilization) IsFull() bool { return f.Used >= f.Limit }

// Ratio returns the used part, 1 for a limit that is reached.
func (f Utilization) Ratio() float64 {
	if f.Limit == 0 {
		return float64(1 + f.Used)
	}
	return float64(f.Used) / float64(f.Limit)
}

// String implements fmt.Stringer.
func (f Utilization) String() string {
	used, limit := amount(f.Name, f.Used), amount(f.Name, f.Limit)
	return fmt.Sprintf("%s of %s", strings.Replace(used, "=", " ", 1), strings.TrimPrefix(limit, string(f.Name)+"="))
}

// Utilization returns the utilization of the limits of the whole resource.
func (l Limits) Utilization(used usage.Usage) []Utilization { return l.Resource.utilization("", used) }

// NamespaceUtilization returns the utilization of the limits in each namespace, the highest
// first.
func (l Limits) NamespaceUtilization(used map[string]usage.Usage) []Utilization {
	if l.Namespace.none() {
		return nil
	}
	var fills []Utilization
	for namespace, used := range used {
		fills = append(fills, l.Namespace.utilization(namespace, used)...)
	}
	slices.SortFunc(fills, func(a, b Utilization) int {
		return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return fills
}

func (l Limit) utilization(namespace string, used usage.Usage) []Utilization {
	var fills []Utilization
	if l.objects != unlimited {
		fills = append(fills, Utilization{namespace, hostingv1alpha1.ResourceObjects, used.Objects, l.objects})
	}
	if l.bytes != unlimited {
		fills = append(fills, Utilization{namespace, hostingv1alpha1.ResourceStorage, used.Bytes, l.bytes})
	}
	return fills
}
