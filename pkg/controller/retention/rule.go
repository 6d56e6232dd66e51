// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

var conditionsPath = []string{"status", "conditions"}

// rule is a rule that is ready to be applied to objects.
type rule struct {
	name     string
	selector labels.Selector
	after    time.Duration
	keep     *hostingv1alpha1.RetentionKeepNewest
	// since returns the time that the age of an object counts from. The rule applies to the object
	// if it has the condition, phase or timestamp; the time may be unusable nevertheless.
	since func(o *object) (t time.Time, applies, usable bool)
}

// newRules returns the rules of a retention, and the top-level fields that they read.
func newRules(retention *hostingv1alpha1.Retention) (rules []rule, roots sets.Set[string], err error) {
	roots = sets.New[string]()
	for _, spec := range retention.Rules {
		made := rule{name: spec.Name, selector: labels.Everything(), after: time.Duration(spec.AfterSeconds) * time.Second, keep: spec.KeepNewest}
		if spec.Selector != nil {
			if made.selector, err = metav1.LabelSelectorAsSelector(spec.Selector); err != nil {
				return nil, nil, fmt.Errorf("read the selector of rule %s: %w", spec.Name, err)
			}
		}
		var paths [][]string
		made.since, paths = sinceOf(&spec)
		for _, path := range paths {
			roots.Insert(path[0])
		}
		rules = append(rules, made)
	}
	return rules, roots, nil
}

// sinceOf returns what gives the time of a rule, and the paths that it reads.
func sinceOf(spec *hostingv1alpha1.RetentionRule) (since func(o *object) (t time.Time, applies, usable bool), paths [][]string) {
	switch {
	case spec.Condition != nil:
		return sinceCondition(spec.Condition), [][]string{conditionsPath}
	case spec.Phase != nil:
		return sincePhase(spec.Phase)
	case spec.Timestamp != nil:
		path := splitPath(spec.Timestamp.Path)
		return func(o *object) (time.Time, bool, bool) {
			value := o.at(path)
			t, usable := toTime(value)
			return t, value != nil, usable
		}, [][]string{path}
	default:
		return func(o *object) (time.Time, bool, bool) {
			return o.CreationTimestamp.Time, true, !o.CreationTimestamp.IsZero()
		}, nil
	}
}

func sinceCondition(spec *hostingv1alpha1.RetentionCondition) func(o *object) (t time.Time, applies, usable bool) {
	return func(o *object) (time.Time, bool, bool) {
		all, _ := o.at(conditionsPath).([]any)
		for _, one := range all {
			condition, _ := one.(map[string]any)
			if condition["type"] == spec.Type && condition["status"] == string(spec.Status) {
				t, usable := toTime(condition["lastTransitionTime"])
				return t, true, usable
			}
		}
		return time.Time{}, false, false
	}
}

func sincePhase(spec *hostingv1alpha1.RetentionPhase) (since func(o *object) (t time.Time, applies, usable bool), paths [][]string) {
	path := splitPath(spec.Path)
	timeOf := func(o *object) (time.Time, bool) { return o.managedSince(path) }
	paths = [][]string{path}
	if spec.TimestampPath != "" {
		timestamp := splitPath(spec.TimestampPath)
		timeOf = func(o *object) (time.Time, bool) { return toTime(o.at(timestamp)) }
		paths = append(paths, timestamp)
	}
	return func(o *object) (time.Time, bool, bool) {
		value, ok := o.at(path).(string)
		if !ok || !slices.Contains(spec.Values, value) {
			return time.Time{}, false, false
		}
		t, usable := timeOf(o)
		return t, true, usable
	}, paths
}

// ownerKey identifies an owner that a reference names. All users that can write an object can put
// any UID there, so a UID alone identifies nothing: an owner is in the namespace of its dependent,
// or cluster-scoped.
type ownerKey struct {
	kind schema.GroupKind
	types.NamespacedName
	uid types.UID
}

func ownerOf(o *object, owner *metav1.OwnerReference) ownerKey {
	return ownerKey{
		kind:           schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(),
		NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: owner.Name}, uid: owner.UID,
	}
}

// group identifies objects in a namespace; the newest of each group are kept.
type group struct {
	namespace, label string
	owner            ownerKey
}

// group returns the group of an object. It returns false if the object has none.
func (r *rule) group(o *object) (group, bool) {
	switch r.keep.Per {
	case hostingv1alpha1.RetentionPerLabel:
		value, found := o.Labels[r.keep.LabelKey]
		return group{namespace: o.Namespace, label: value}, found
	case hostingv1alpha1.RetentionPerOwner:
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil {
			return group{}, false
		}
		return group{namespace: o.Namespace, owner: ownerOf(o, owner)}, true
	default:
		return group{namespace: o.Namespace}, true
	}
}
