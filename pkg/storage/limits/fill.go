// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// Fill is how full a limit is.
type Fill struct {
	// Namespace is empty for the limit of the whole.
	Namespace   string
	Name        hostingv1alpha1.ResourceName
	Used, Limit int64
}

// Full reports whether there is no room for more.
func (f Fill) Full() bool { return f.Used >= f.Limit }

// Ratio is 1 for a limit that is reached.
func (f Fill) Ratio() float64 {
	if f.Limit == 0 {
		return float64(1 + f.Used)
	}
	return float64(f.Used) / float64(f.Limit)
}

// String implements fmt.Stringer.
func (f Fill) String() string {
	used, limit := amount(f.Name, f.Used), amount(f.Name, f.Limit)
	return fmt.Sprintf("%s of %s", strings.Replace(used, "=", " ", 1), strings.TrimPrefix(limit, string(f.Name)+"="))
}

// FillsOfWhole are those of the limits of a resource as a whole.
func (l Limits) FillsOfWhole(used usage.Usage) []Fill { return l.Whole.fills("", used) }

// FillsOfNamespaces are those of the limits in each namespace, the fullest first.
func (l Limits) FillsOfNamespaces(used map[string]usage.Usage) []Fill {
	if l.Namespace.none() {
		return nil
	}
	var fills []Fill
	for namespace, used := range used {
		fills = append(fills, l.Namespace.fills(namespace, used)...)
	}
	slices.SortFunc(fills, func(a, b Fill) int {
		return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return fills
}

func (l Limit) fills(namespace string, used usage.Usage) []Fill {
	var fills []Fill
	if l.objects != unlimited {
		fills = append(fills, Fill{namespace, hostingv1alpha1.ResourceObjects, used.Objects, l.objects})
	}
	if l.bytes != unlimited {
		fills = append(fills, Fill{namespace, hostingv1alpha1.ResourceStorage, used.Bytes, l.bytes})
	}
	return fills
}
