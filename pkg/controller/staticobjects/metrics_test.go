// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/annex-dev/annex/pkg/staticobjects"
)

// TestMetrics is not parallel: controllers of other tests reset the metrics at their end.
func TestMetrics(t *testing.T) {
	registerMetrics()
	resetMetrics()
	setMetrics("file", 2, map[staticobjects.Key]state{
		{Name: "one"}: {phase: applied, source: "file"}, {Name: "two"}: {phase: waiting, source: "file"}, {Name: "other"}: {phase: applied, source: "http"},
	})
	const want = `
# HELP annex_static_source_objects [ALPHA] Objects in a source of static objects, in the replica that leads.
# TYPE annex_static_source_objects gauge
annex_static_source_objects{source="file"} 2
# HELP annex_static_source_object_states [ALPHA] Static objects and mirrors of a source, in the replica that leads, by state: applied, waiting, refused, failing; orphaned and kept without a static object.
# TYPE annex_static_source_object_states gauge
annex_static_source_object_states{source="file",state="applied"} 1
annex_static_source_object_states{source="file",state="failing"} 0
annex_static_source_object_states{source="file",state="kept"} 0
annex_static_source_object_states{source="file",state="orphaned"} 0
annex_static_source_object_states{source="file",state="refused"} 0
annex_static_source_object_states{source="file",state="waiting"} 1
`
	names := []string{"annex_static_source_objects", "annex_static_source_object_states"}
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	resetMetrics()
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(""), names...); err != nil {
		t.Errorf("after the end of the leadership: %v", err)
	}
}
