// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestKubectlFlags parses kubectl's flags, and checks the requests.
func TestKubectlFlags(t *testing.T) {
	t.Parallel()
	o, config := &Options{}, filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, os.WriteFile(config, []byte("{clusters: [{name: a, cluster: {server: 'https://a.example.com'}}], users: [{name: u, user: {token: t}}],"+
		"contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: a}}], current-context: a}"), 0o600))
	cmd := &cobra.Command{}
	o.AddFlags(cmd.Flags(), AnnexOrMain)
	if o.Given() {
		t.Error("a server is given without a flag")
	}
	expect.NoError(t, cmd.ParseFlags([]string{"--kubeconfig", config, "--context=b", "--as=bob", "--as-group=ops", "--user=u", "-n", "x", "-s", "https://b.example.com", "--request-timeout=7s"}))
	clients, err := o.Connect("annex-test")
	expect.NoError(t, err)
	got := clients.Config
	if !o.Given() || got.Host != "https://b.example.com" || got.Impersonate.UserName != "bob" || got.Impersonate.Groups[0] != "ops" || got.BearerToken != "t" || got.Timeout != 7*time.Second {
		t.Errorf("%v", got)
	}
	for _, no := range []string{"insecure-skip-tls-verify", "password"} {
		if cmd.Flags().Lookup(no) != nil {
			t.Errorf("there is --%s", no)
		}
	}
}

// TestComplete completes an argument and a flag with the names that a server has.
func TestComplete(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names := map[string]string{
			"/apis/hosting.annex.dev/v1alpha1/stores":                 `{"metadata":{"name":"default"}},{"metadata":{"name":"west"}}`,
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": `{"metadata":{"name":"b.x.io"}},{"metadata":{"name":"c.a.io"}},{"metadata":{"name":"a.x.io"}}`,
		}[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[%s]}`, names)
	}))
	t.Cleanup(server.Close)
	for name, tc := range map[string]struct {
		names Names
		want  []string
	}{"stores": {Stores, []string{"default", "west"}}, "groups": {Groups, []string{"a.io", "x.io"}}, "none": {HostedResources, []string{}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, cmd := &Options{}, &cobra.Command{}
			o.AddFlags(cmd.Flags(), AnnexOrMain)
			o.CompleteArgument(cmd, tc.names)
			o.CompleteFlag(cmd, "cluster", tc.names)
			cmd.SetContext(t.Context())
			expect.NoError(t, cmd.ParseFlags([]string{"--server", server.URL}))
			got, directive := cmd.ValidArgsFunction(cmd, nil, "")
			expect.Equal(t, tc.want, got, "names")
			if directive != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("directive %d", directive)
			}
			if second, _ := cmd.ValidArgsFunction(cmd, []string{"first"}, ""); second != nil {
				t.Errorf("a second argument is completed: %v", second)
			}
		})
	}
}
