// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import "net/http"

// withoutRedirect serves a document of OpenAPI v3. A link with the hash of an
// older document leads upstream to a redirection, which kube-apiserver turns into
// 502 when it comes from a server behind it. The main cluster's index may be a
// minute old, so such links are common: they are answered with what there is now.
func withoutRedirect(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !r.URL.Query().Has("hash") {
		next.ServeHTTP(w, r)
		return
	}
	probe := &redirectCatcher{ResponseWriter: w}
	next.ServeHTTP(probe, r)
	if !probe.caught {
		return
	}
	for _, name := range []string{"Location", "Content-Type", "Etag"} {
		w.Header().Del(name)
	}
	current := r.Clone(r.Context())
	query := current.URL.Query()
	query.Del("hash")
	current.URL.RawQuery = query.Encode()
	next.ServeHTTP(w, current)
}

// redirectCatcher swallows a redirection and lets everything else pass.
type redirectCatcher struct {
	http.ResponseWriter
	caught bool
}

// Unwrap lets handlers reach what the writer can do beside writing.
func (c *redirectCatcher) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader notes a redirection instead of sending it.
func (c *redirectCatcher) WriteHeader(code int) {
	if code == http.StatusMovedPermanently {
		c.caught = true
		return
	}
	c.ResponseWriter.WriteHeader(code)
}

// Write drops the body of a redirection.
func (c *redirectCatcher) Write(content []byte) (int, error) {
	if c.caught {
		return len(content), nil
	}
	return c.ResponseWriter.Write(content)
}
