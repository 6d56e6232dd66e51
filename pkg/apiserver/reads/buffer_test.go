// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// writes records what reaches the connection.
type writes struct {
	*httptest.ResponseRecorder
	seen []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.seen = append(w.seen, string(p))
	return len(p), nil
}

func (w *writes) Flush() { w.seen = append(w.seen, "flush") }

func TestBuffer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		upgrade string
		want    []string
	}{
		"watch":     {"", []string{"flush", "ab", "flush", "c", "flush"}},
		"WebSocket": {"websocket", []string{"flush", "a", "b", "flush", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection := &writes{ResponseRecorder: httptest.NewRecorder()}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Header.Set("Upgrade", test.upgrade)
			withBuffer(func(w http.ResponseWriter, _ *http.Request) {
				write := func(text string) {
					_, err := w.Write([]byte(text))
					expect.NoError(t, err)
				}
				w.(http.Flusher).Flush() // the headers
				write("a")
				write("b")
				w.(http.Flusher).Flush()
				write("c")
			})(connection, request)
			if diff := cmp.Diff(test.want, connection.seen); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
