// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"strings"
	"testing"
	"testing/iotest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const text = `# HELP other Not wanted.
# TYPE other counter
other{a="x"} 1
# HELP wanted Of both types.
# TYPE wanted gauge
wanted{a="x",b="{ }"} 2
wanted{a="y",b=""} -1
wanted_too 4
# TYPE plain counter
plain 3.5e+07
`

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	families, err := parseMetrics(iotest.OneByteReader(strings.NewReader(text)), []string{"wanted", "plain", "missing"})
	expect.NoError(t, err)
	if len(families) != 2 {
		t.Errorf("read %v, want two families", families)
	}
	wanted := families["wanted"].GetMetric()
	if len(wanted) != 2 || wanted[0].GetGauge().GetValue() != 2 || wanted[1].GetGauge().GetValue() != -1 {
		t.Errorf("read %v", wanted)
	}
	expect.Equal(t, map[string]string{"a": "x", "b": "{ }"}, MetricLabels(wanted[0]))
	if plain := families["plain"].GetMetric()[0].GetCounter().GetValue(); plain != 3.5e7 {
		t.Errorf("read %v without labels", plain)
	}
}

func TestParseMetricsErrors(t *testing.T) {
	t.Parallel()
	_, err := parseMetrics(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text))), []string{"wanted"})
	expect.Error(t, err, "timeout")
	_, err = parseMetrics(strings.NewReader("wanted{a=\"x\" 2\n"), []string{"wanted"})
	expect.Error(t, err, "line 1")
}
