// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// unlimited is a limit that is not set.
const unlimited = math.MaxInt64

// Limit is the maximum number and bytes of objects.
type Limit struct {
	objects, bytes int64
}

var noLimit = Limit{objects: unlimited, bytes: unlimited}

// Limits are the limits of a resource and of its part in each namespace.
type Limits struct {
	Resource, Namespace Limit
	// version distinguishes limits that were changed and changed back.
	version version
}

type version struct {
	uid        types.UID
	generation int64
}

// Of returns the limits that a HostedResource sets.
func Of(hosted *hostingv1alpha1.HostedResource) Limits {
	return Limits{
		Resource:  of(hosted.Spec.Limits),
		Namespace: of(hosted.Spec.NamespaceLimits),
		version:   version{uid: hosted.UID, generation: hosted.Generation},
	}
}

// Unlimited returns the limits of a resource without limits.
func Unlimited() Limits { return Limits{Resource: noLimit, Namespace: noLimit} }

func of(list hostingv1alpha1.ResourceList) Limit {
	limit := noLimit
	if objects, ok := list[hostingv1alpha1.ResourceObjects]; ok {
		limit.objects = objects.Value()
	}
	if bytes, ok := list[hostingv1alpha1.ResourceStorage]; ok {
		limit.bytes = bytes.Value()
	}
	return limit
}

// None reports whether nothing is limited.
func (l Limits) None() bool { return l.Resource.none() && l.Namespace.none() }

func (l Limits) ofBytes() bool {
	return l.Resource.bytes != unlimited || l.Namespace.bytes != unlimited
}

func (l Limit) none() bool { return l == noLimit }

// exceeded returns how a growth would exceed the limit, in the words of ResourceQuota, or "". No
// growth exceeds nothing, however much there is.
func (l Limit) exceeded(used, growth usage.Usage) string {
	var requested, inUse, limited []string
	add := func(name hostingv1alpha1.ResourceName, growth, used, limit int64) {
		if growth <= 0 || used+growth <= limit {
			return
		}
		if name == hostingv1alpha1.ResourceStorage {
			growth, used = wholeKiB(growth), wholeKiB(used)
		}
		requested = append(requested, amount(name, growth))
		inUse = append(inUse, amount(name, used))
		limited = append(limited, amount(name, limit))
	}
	add(hostingv1alpha1.ResourceObjects, growth.Objects, used.Objects, l.objects)
	add(hostingv1alpha1.ResourceStorage, growth.Bytes, used.Bytes, l.bytes)
	if requested == nil {
		return ""
	}
	return fmt.Sprintf("requested: %s, used: %s, limited: %s",
		strings.Join(requested, ","), strings.Join(inUse, ","), strings.Join(limited, ","))
}

// wholeKiB rounds a stored size up: an exact one would tell how well an object compresses, and so
// what the dictionary has.
func wholeKiB(bytes int64) int64 { return (bytes + 1023) &^ 1023 }

func amount(name hostingv1alpha1.ResourceName, n int64) string {
	format := resource.DecimalSI
	if name == hostingv1alpha1.ResourceStorage {
		format = resource.BinarySI
	}
	return fmt.Sprintf("%s=%s", name, resource.NewQuantity(n, format))
}
