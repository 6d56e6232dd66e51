// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboards reads annex's dashboards for Grafana, and keeps the results of their queries in a test, for pictures.
package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/annex-dev/annex/pkg/test/process"
)

// Dashboard has the parts of a dashboard that tests and pictures need.
type Dashboard struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is a part of a dashboard.
type Panel struct {
	// Type is "timeseries", or "stat" for one number.
	Type  string `json:"type"`
	Title string `json:"title"`
	// GridPos is the place in a grid with 24 columns.
	GridPos struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			// Unit is Grafana's name of a unit.
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
}

// Target is a query.
type Target struct {
	Expr string `json:"expr"`
	// LegendFormat is the name of a series, with labels as {{label}}.
	LegendFormat string `json:"legendFormat"`
	// Results are not in dashboards. A test adds them.
	Results []Series `json:"results,omitempty"`
}

// Series is a result of Prometheus.
type Series struct {
	Metric map[string]string `json:"metric"`
	// Values are pairs of a time in seconds and a number as a string. An instant query has none.
	Values [][2]any `json:"values,omitempty"`
}

// Read returns annex's dashboards by the names of their files.
func Read(ctx context.Context) (map[string]*Dashboard, error) {
	root, err := process.ModuleRoot(ctx)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "artifacts/chart/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find the dashboards: there are %d: %w", len(files), err)
	}
	all := map[string]*Dashboard{}
	for _, file := range files {
		if all[filepath.Base(file)], err = ReadFile(file); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ReadFile returns the dashboard in a file.
func ReadFile(path string) (*Dashboard, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a dashboard: %w", err)
	}
	d := &Dashboard{}
	if err := json.Unmarshal(content, d); err != nil {
		return nil, fmt.Errorf("decode the dashboard %s: %w", path, err)
	}
	return d, nil
}
