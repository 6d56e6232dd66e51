// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"path/filepath"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// A folder and a server need not exist at the start, a file with headers must.
func TestStaticSources(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		static  Static
		want    map[string]string
		wantErr string
	}{
		"none": {Static{}, map[string]string{}, ""},
		"both": {Static{Dir: "/no/such", URL: "https://example.com/all.yaml"}, map[string]string{"file": "/no/such", "http": "https://example.com/all.yaml"}, ""},
		"no headers": {Static{URL: "https://example.com", URLHeaderFile: filepath.Join(t.TempDir(), "header")}, nil,
			"--static-url, --static-url-header-file, --static-url-ca-file: read the headers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources, err := test.static.Sources()
			expect.ErrorOrNone(t, err, test.wantErr)
			if err == nil {
				expect.Equal(t, test.want, sources.Locations(), "sources")
			}
		})
	}
}
