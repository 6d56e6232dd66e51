// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestIsPlain(t *testing.T) {
	t.Parallel()
	required := func(p metav1.Preconditions) metav1.DeleteOptions { return metav1.DeleteOptions{Preconditions: &p} }
	for name, test := range map[string]struct {
		options metav1.DeleteOptions
		want    bool
	}{
		"none":            {metav1.DeleteOptions{}, true},
		"grace period":    {metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))}, true},
		"Background":      {metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, true},
		"Foreground":      {metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}, false},
		"Orphan":          {metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}, false},
		"orphans":         {metav1.DeleteOptions{OrphanDependents: new(true)}, false},
		"no orphans":      {metav1.DeleteOptions{OrphanDependents: new(false)}, true},
		"dry run":         {metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, false},
		"unreadable":      {metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}, false},
		"UID":             {required(metav1.Preconditions{UID: new(types.UID("u"))}), true},
		"another UID":     {required(metav1.Preconditions{UID: new(types.UID("v"))}), false},
		"version":         {required(metav1.Preconditions{ResourceVersion: new("")}), true},
		"another version": {required(metav1.Preconditions{UID: new(types.UID("u")), ResourceVersion: new("7")}), false},
	} {
		d := &deleter{existing: existing{object: &watchcache.Object{}, metadata: &metav1.ObjectMeta{UID: "u"}}}
		expect.Equal(t, test.want, d.isPlain(&test.options), name)
	}
}
