// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// statusOf returns what a client gets.
func statusOf(t *testing.T, err error) metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("error %v, want a status", err)
	}
	return status.Status()
}

func listPage(t *testing.T, s storage.Interface, limit int64, token string) (*example.PodList, error) {
	t.Helper()
	options := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	options.Predicate.Limit, options.Predicate.Continue = limit, token
	pods := &example.PodList{}
	return pods, s.GetList(t.Context(), "/example.com/widgets/", options, pods)
}

// TestTokens reads pages, and sends tokens to the other side: annex's to a server that has compacted the first
// revision, and upstream's to annex. Each answers as upstream does for a revision that was compacted.
func TestTokens(t *testing.T) {
	t.Parallel()
	for name, cached := range map[string]bool{"with a watch cache": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newStorage := func(store *fakeStore, own bool) storage.Interface {
				w := newFixture(t, store)
				w.config.Cached, w.config.OwnTokens = func(schema.GroupResource) bool { return cached }, own
				w.place(t, placedOn(store.name, "first"))
				return w.widgetStorage(t)
			}
			one, two := startStore(t, "one"), startStore(t, "two")
			annex, main := newStorage(one, true), newStorage(two, false)
			for i := range 5 {
				expect.NoError(t, create(t.Context(), annex, fmt.Sprint(widgetKey, i)))
				expect.NoError(t, create(t.Context(), main, fmt.Sprint(widgetKey, i)))
			}
			first, err := listPage(t, annex, 2, "")
			expect.NoError(t, err)
			ofMain, err := listPage(t, main, 2, "")
			expect.NoError(t, err)
			expect.NoError(t, annex.Delete(t.Context(), widgetKey+"4", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
			expect.NoError(t, create(t.Context(), annex, widgetKey+"9"))

			second, err := listPage(t, annex, 2, first.Continue)
			expect.NoError(t, err)
			third, err := listPage(t, annex, 2, second.Continue)
			expect.NoError(t, err)
			if len(third.Items) != 1 || third.Items[0].Name != "a4" || third.Continue != "" || third.ResourceVersion != first.ResourceVersion {
				t.Errorf("the last page is %+v, want a4 at %s", third, first.ResourceVersion)
			}

			now, err := two.client.KV.Get(t.Context(), "-")
			expect.NoError(t, err)
			_, err = two.client.Compact(t.Context(), now.Header.Revision)
			expect.NoError(t, err)
			main = newStorage(two, false) // a watch cache may have the revision
			_, err = listPage(t, main, 2, first.Continue)
			want := statusOf(t, err)
			if want.Code != 410 || want.Continue == "" {
				t.Errorf("annex's token in the main cluster: %+v, want 410 with a token", want)
			}
			_, err = listPage(t, annex, 2, ofMain.Continue)
			if diff := cmp.Diff(want, statusOf(t, err)); diff != "" {
				t.Errorf("the main cluster's token in annex (-upstream's answer +annex):\n%s", diff)
			}
			for last, s := range map[string]storage.Interface{"a9": annex, "a4": main} { // as it is now
				rest, err := listPage(t, s, 2, want.Continue)
				expect.NoError(t, err)
				if len(rest.Items) != 2 || rest.Items[0].Name != "a2" || rest.Continue == "" {
					t.Fatalf("a token of the error, where %s is last: %+v, want two of three from a2", last, rest)
				}
				rest, err = listPage(t, s, 2, rest.Continue)
				expect.NoError(t, err)
				if len(rest.Items) != 1 || rest.Items[0].Name != last {
					t.Errorf("the page after it: %+v, want %s", rest, last)
				}
			}
		})
	}
}

// TestForgedTokens: annex's field makes no token valid that upstream refuses.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	one := startStore(t, "one")
	w := newFixture(t, one)
	w.config.OwnTokens = true
	w.place(t, placedOn("one", "first"))
	s := w.widgetStorage(t)
	expect.NoError(t, create(t.Context(), s, widgetKey))
	expect.NoError(t, create(t.Context(), s, "/example.com/widgets-of-others/ns/a"))
	for content, code := range map[string]int32{
		``:   400,
		`{}`: 400,
		`{"v":"meta.k8s.io/v1","rv":0,"start":"ns/a","annex":5}`:      400,
		`{"v":"meta.k8s.io/v1","rv":1,"start":"","annex":5}`:          400,
		`{"v":"meta.k8s.io/v2","rv":1,"start":"ns/a","annex":5}`:      400,
		`{"v":"meta.k8s.io/v1","rv":1,"start":"../x","annex":5}`:      400,
		`{"v":"meta.k8s.io/v1","rv":1,"start":"a/../../b","annex":5}`: 400,
		`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a"}`:                410,
		`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a","annex":0}`:      410,
		`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a","annex":-1}`:     410,
		`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a","annex":"5"}`:    410,
		`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a","ANNEX":null}`:   410,
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"/","annex":99}`:       200,
	} {
		found, err := listPage(t, s, 2, base64.RawURLEncoding.EncodeToString([]byte(content))+map[bool]string{true: "!"}[content == ""])
		if code == 200 {
			if err != nil || len(found.Items) != 1 {
				t.Errorf("%s: %v, %d objects, want one", content, err, len(found.Items))
			}
		} else if got := statusOf(t, err); got.Code != code {
			t.Errorf("%s: %+v, want %d", content, got, code)
		}
	}
	expectFirst := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"/","annex":1000000}`))
	if _, err := listPage(t, s, 2, expectFirst); !storage.IsTooLargeResourceVersion(err) {
		t.Errorf("a token from the future: %v, want that the version is too large", err)
	}
}
