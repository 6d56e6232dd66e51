// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"strings"
	"testing"
)

func TestServiceSet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value string
		want  Service
		err   string
	}{
		"whole":              {value: "system/annex:8443", want: Service{"system", "annex", 8443}},
		"without a port":     {value: "system/annex", want: Service{"system", "annex", 443}},
		"without a name":     {value: "system:443", err: "NAMESPACE/NAME:PORT"},
		"empty":              {value: "", err: "NAMESPACE/NAME:PORT"},
		"port is no number":  {value: "system/annex:https", err: "must be a number"},
		"port out of range":  {value: "system/annex:0", err: "port 0"},
		"bad namespace":      {value: "Sys/annex:1", err: `namespace "Sys"`},
		"bad name":           {value: "system/9annex:1", err: `name "9annex"`},
		"name with a slash":  {value: "system/a/b:1", err: `name "a/b"`},
		"empty namespace":    {value: "/annex:1", err: `namespace ""`},
		"port with trailing": {value: "system/annex:44x", err: "must be a number"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := DefaultService()
			got := before
			err := got.Set(tc.value)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("Set(%q) = %v, want an error with %q", tc.value, err, tc.err)
				}
				if got != before {
					t.Errorf("a refused value changed it to %v", got)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("Set(%q) = %v, %v, want %v", tc.value, got, err, tc.want)
			}
		})
	}
}

func TestServiceStringIsWhatSetTakes(t *testing.T) {
	t.Parallel()
	want := DefaultService()
	var got Service
	if err := got.Set(want.String()); err != nil || got != want {
		t.Errorf("Set(String()) = %v, %v, want %v", got, err, want)
	}
	if lease := want.Lease(); lease != "annex-controllers" {
		t.Errorf("Lease() = %q, which the manifests give no right to", lease)
	}
	if name := want.ServerName(); name != "annex.annex-system.svc" {
		t.Errorf("ServerName() = %q", name)
	}
}
