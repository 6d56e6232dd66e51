// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"strings"
	"testing"
)

func TestExecute(t *testing.T) {
	tests := map[string]struct {
		args     []string
		exitCode int
		out      []string // all must be printed
		errOut   []string // all must be in the one line on standard error
	}{
		"version":                   {[]string{"version"}, 0, []string{"annex v", "Kubernetes v1."}, nil},
		"help":                      {[]string{"--help"}, 0, []string{"serve", "version"}, nil},
		"help of serve":             {[]string{"serve", "--help"}, 0, []string{"Annex flags:", "Etcd flags:", "--data-dir", "--secure-port", "--feature-gates"}, nil},
		"backup without a target":   {[]string{"backup", "x"}, 1, nil, []string{"annex: ", "--store or --resource"}},
		"restore to two targets":    {[]string{"restore", "x", "--data-dir=a", "--store=b"}, 1, nil, []string{"annex: ", "--data-dir", "--store"}},
		"place without a resource":  {[]string{"place"}, 1, nil, []string{"annex: ", "accepts 1 arg"}},
		"place an invalid resource": {[]string{"place", "widgets"}, 1, nil, []string{"annex: ", "<plural>.<group>"}},
		"move without a group":      {[]string{"move"}, 1, nil, []string{"annex: ", "accepts 1 arg"}},
		"unnamed scheduler":         {[]string{"scheduler", "--scheduler-name="}, 1, nil, []string{"annex: ", "--scheduler-name"}},
		"no retry period":           {[]string{"scheduler", "--leader-elect-retry-period=0"}, 1, nil, []string{"annex: ", "--leader-elect-retry-period"}},
		"unknown command":           {[]string{"sevre"}, 1, nil, []string{"annex: ", "sevre"}},
		"unknown flag":              {[]string{"serve", "--no-such-flag"}, 1, nil, []string{"annex: ", "--no-such-flag"}},
		"stray argument":            {[]string{"serve", "now"}, 1, nil, []string{"annex: ", "now"}},
		"rejected value":            {[]string{"serve", "--secure-port=70000"}, 1, nil, []string{"annex: ", "--secure-port"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			if got := Execute(tc.args, &out, &errOut); got != tc.exitCode {
				t.Errorf("exit code is %d, want %d", got, tc.exitCode)
			}
			for _, want := range tc.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output does not have %q:\n%s", want, out.String())
				}
			}
			for _, want := range tc.errOut {
				if !strings.Contains(errOut.String(), want) {
					t.Errorf("error does not have %q: %s", want, errOut.String())
				}
			}
			wantLines := 0
			if tc.exitCode != 0 {
				wantLines = 1
			}
			if got := strings.Count(errOut.String(), "\n"); got != wantLines {
				t.Errorf("%d lines on standard error, want %d:\n%s", got, wantLines, errOut.String())
			}
		})
	}
}

func TestDisplayName(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/local/bin/annex": "annex", "kubectl-annex": "kubectl annex", "/bin/kubectl-annex.exe": "kubectl annex", "/tmp/cmd.test": "annex",
	} {
		if got := displayName(program); got != want {
			t.Errorf("%s is called %q, want %q", program, got, want)
		}
	}
}
