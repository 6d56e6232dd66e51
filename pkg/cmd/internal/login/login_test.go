// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/version"
)

// TestModes checks that commands detect whether a server is annex or a main cluster.
func TestModes(t *testing.T) {
	t.Parallel()
	const hosting = "/apis/hosting.annex.dev/v1alpha1"
	kubernetes := fmt.Sprintf(`{"gitVersion":"v%s"}`, version.Kubernetes())
	for name, tc := range map[string]struct {
		// answers are the server's, by path. Others are 404, and 503 with none.
		answers map[string]string
		// main and annex are the errors of commands that need one.
		main, annex string
	}{
		"annex":                      {map[string]string{"/version": fmt.Sprintf(`{"gitVersion":%q}`, version.Full()), hosting: "{}"}, "is annex itself, and this command needs the main cluster", ""},
		"main cluster":               {map[string]string{"/version": kubernetes, hosting: "{}"}, "", ""},
		"main cluster without annex": {map[string]string{"/version": kubernetes}, "", "does not serve hosting.annex.dev/v1alpha1: it is neither annex nor a main cluster"},
		"unavailable":                {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, ok := tc.answers[r.URL.Path]
				switch {
				case tc.answers == nil:
					w.WriteHeader(http.StatusServiceUnavailable)
				case !ok:
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = w.Write([]byte(answer))
			}))
			t.Cleanup(server.Close)
			o := &Options{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
			expect.NoError(t, os.WriteFile(o.kubeconfig, fmt.Appendf(nil,
				"{clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}", server.URL), 0o600))
			for what, check := range map[string]struct {
				connect func(context.Context, string) (*Clients, error)
				want    string
			}{"main": {o.ConnectMain, tc.main}, "annex": {o.ConnectAnnex, tc.annex}} {
				switch clients, err := check.connect(t.Context(), "annex-test"); {
				case check.want == "" && (err != nil || clients.Config.Host != server.URL):
					t.Errorf("%s: %v, %v", what, clients, err)
				case check.want != "" && (err == nil || !strings.Contains(err.Error(), server.URL+" "+check.want)):
					t.Errorf("%s: %v, want %q", what, err, check.want)
				}
			}
		})
	}
}
