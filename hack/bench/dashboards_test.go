// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDrawDashboard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "stores.json")
	content := `{"panels":[
		{"type":"stat","title":"Replicas","gridPos":{"X":0,"Y":0,"W":12,"H":4},"targets":[{"results":[{"values":[[10,"1"],[11,"3"]]}]}]},
		{"type":"timeseries","title":"Size","gridPos":{"X":12,"Y":0,"W":12,"H":4},"fieldConfig":{"defaults":{"unit":"bytes"}},"targets":[{"legendFormat":"{{store}} free",
			"results":[{"metric":{"store":"west"},"values":[[10,"NaN"],[11,"2097152"],[12,"3145728"]]},{"metric":{"store":"gone"},"values":[]}]}]}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := drawDashboard(file, dir); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "stores.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Replicas: 3", "Size", "MiB", "west free"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
	if strings.Contains(string(picture), "gone") {
		t.Error("a series without values is in the legend")
	}
}
