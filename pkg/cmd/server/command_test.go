// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestAnnounce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ kubeconfig, want string }{
		"plain path":   {"/data/admin.kubeconfig", "export KUBECONFIG=/data/admin.kubeconfig\n"},
		"with a space": {"/my data/admin.kubeconfig", "export KUBECONFIG='/my data/admin.kubeconfig'\n"},
		"with a quote": {"/it's/admin.kubeconfig", `export KUBECONFIG='/it'\''s/admin.kubeconfig'` + "\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			printReady(&out, Ready{URL: "https://127.0.0.1:7443", Kubeconfig: tc.kubeconfig})
			if !bytes.HasSuffix(out.Bytes(), []byte(tc.want)) || !bytes.Contains(out.Bytes(), []byte("https://127.0.0.1:7443")) {
				t.Errorf("got %q, want the URL and at the end %q", out.String(), tc.want)
			}
			if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 {
				t.Errorf("%d lines, want one", n)
			}
		})
	}
}

func TestErrorsOnly(t *testing.T) {
	t.Parallel()
	const timedOut = "E1121 04:00:31 err=\"unable to write a response: http: Handler timeout\"\n"
	const repeated = "E1121 04:00:31.1 7 cacher.go:506] cacher (widgets): unexpected ListAndWatch error: refused\n"
	const quoted = "E1121 04:00:31.1 7 detector.go:117] \"An object cannot be read\"\n"
	const recovered = "I1121 04:00:32 reconcile.go:203] \"The store is ready again\"\n"
	stopping, stop := context.WithCancel(t.Context())
	stop()
	for name, test := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"serving":       {t.Context(), "E1121 04:00:31 failed\n" + repeated + quoted + quoted + timedOut + recovered + "panic: x\n"},
		"shutting down": {stopping, "E1121 04:00:31 failed\n" + repeated + quoted + quoted + recovered + "panic: x\n"},
	} {
		var out bytes.Buffer
		quiet := errorsOnly{&out, test.ctx, &repeats{}}
		for _, line := range []string{
			"I1121 04:00:31 informed\n", "W1121 04:00:31 warned\n", "E1121 04:00:31 failed\n", repeated, strings.Replace(repeated, "04:00:31", "04:00:32", 1),
			quoted, quoted, "E1121 04:00:31 err=\"Get: context canceled\"\n",
			"E1121 04:00:31 err=\"http2: stream closed\"\n", timedOut, recovered, "", "panic: x\n",
		} {
			if n, err := quiet.Write([]byte(line)); n != len(line) || err != nil {
				t.Errorf("%s: Write(%q) = %d, %v", name, line, n, err)
			}
		}
		if out.String() != test.want {
			t.Errorf("%s: passed on %q, want %q", name, out.String(), test.want)
		}
	}
}
