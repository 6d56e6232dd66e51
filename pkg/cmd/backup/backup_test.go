// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
	`"metadata":{"name":"%s","uid":"u","resourceVersion":"7","labels":{"a":"b"},"annotations":{"annex.dev/definition-from":"main","keep":"this"}},` +
	`"spec":{"group":"example.com","unknown":1},"status":{"storedVersions":["v1","v2"]}}`

// writeArchive writes a backup of two resources, of one without objects, and of what
// is no custom resource.
func writeArchive(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	target, err := newFile(path)
	expect.NoError(t, err)
	w, err := backup.NewWriter(target, backup.Header{Store: "fast", Prefix: "/annex/", Revision: 3, ResourceVersion: 9})
	write := func(kind backup.Kind, key string, size int) {
		if err == nil {
			err = w.Write(backup.Record{Kind: kind, Key: key, Value: []byte(strings.Repeat("x", size))})
		}
	}
	manifest := func(key, content string) {
		if err == nil {
			err = w.Write(backup.Record{Kind: backup.KindManifest, Key: key, Value: []byte(content)})
		}
	}
	for _, name := range []string{"widgets.example.com", "gadgets.example.com", "empty.example.com"} {
		manifest(hostedKey+name, `{"metadata":{"name":"`+name+`"},"spec":{"storeName":"fast"}}`)
		manifest(definitionKey+name, fmt.Sprintf(definition, name))
	}
	manifest(hostedKey+"undefined.example.com", `{"metadata":{"name":"undefined.example.com"}}`)
	write(backup.KindDictionary, "_annex/dictionaries/example.com/widgets/1", 10)
	for i := range 3 {
		write(backup.KindObject, fmt.Sprintf("example.com/gadgets/g%d", i), 10)
	}
	for i := range 5 {
		write(backup.KindObject, fmt.Sprintf("example.com/widgets/ns/w%d", i), maxPartBytes/2-2000)
	}
	write(backup.KindObject, "secrets/ns/s", 10)
	if err == nil {
		_, err = w.Close()
	}
	if err == nil {
		err = target.finish()
	}
	expect.NoError(t, err)
	target.discard()
	return path
}

func TestParts(t *testing.T) {
	t.Parallel()
	a, err := openArchive(writeArchive(t))
	expect.NoError(t, err)
	wanted, err := (&restoreOptions{}).wanted(a)
	expect.NoError(t, err)
	var got []string
	err = a.parts(wanted, func(resource *saved, part []byte, count, _ int64) error {
		dictionaries, keys := 0, []string{}
		header, _, err := readRecords(bytes.NewReader(part), func(record backup.Record) error {
			if record.Kind == backup.KindDictionary {
				dictionaries++
			} else {
				keys = append(keys, record.Key[strings.LastIndex(record.Key, "/")+1:])
			}
			return nil
		})
		if int(count) != len(keys) || header.Resource != resource.name || header.ResourceVersion != 9 {
			t.Errorf("%s: header %+v, %d objects", resource.name, header, count)
		}
		got = append(got, fmt.Sprintf("%s %d %s", resource.name, dictionaries, strings.Join(keys, ",")))
		return err
	})
	expect.NoError(t, err)
	want := []string{
		"gadgets.example.com 0 g0,g1,g2", "widgets.example.com 1 w0,w1", "widgets.example.com 1 w2,w3", "widgets.example.com 1 w4", "empty.example.com 0 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	for name, found := range map[string]int64{"gadgets.example.com": 3, "widgets.example.com": 5, "empty.example.com": 0} {
		if a.resources[name].objects != found {
			t.Errorf("%s has %d objects, want %d", name, a.resources[name].objects, found)
		}
	}
	if _, err := (&restoreOptions{resource: "undefined.example.com"}).wanted(a); err == nil {
		t.Error("a resource without a definition was chosen")
	}
	one, err := (&restoreOptions{resource: "gadgets.example.com"}).wanted(a)
	if err != nil || len(one) != 1 || one[0].name != "gadgets.example.com" {
		t.Errorf("chosen: %v, %v", one, err)
	}
}

func TestFresh(t *testing.T) {
	t.Parallel()
	var was unstructured.Unstructured
	expect.NoError(t, was.UnmarshalJSON(fmt.Appendf(nil, definition, "widgets.example.com")))
	want := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com", "labels": map[string]any{"a": "b"}, "annotations": map[string]any{"keep": "this"}},
		"spec":     map[string]any{"group": "example.com", "unknown": int64(1)},
	}
	if diff := cmp.Diff(want, fresh(&was).Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "backup")
	abandoned, err := newFile(path)
	expect.NoError(t, err)
	abandoned.discard()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("an abandoned file left %v, %v", entries, err)
	}
	// Two at the same time: the first to end is kept.
	var files [2]*file
	for i := range files {
		files[i], err = newFile(path)
		expect.NoError(t, err)
		defer files[i].discard()
		_, err = fmt.Fprint(files[i], i)
		expect.NoError(t, err)
	}
	expect.NoError(t, files[0].finish())
	if err := files[1].finish(); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("the second: %v", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "0" {
		t.Errorf("the file has %q, %v", content, err)
	}
	if _, err := newFile(filepath.Join(dir, "none", "backup")); err == nil {
		t.Error("a file in no folder was begun")
	}
}

func TestAgain(t *testing.T) {
	t.Parallel()
	status := func(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }
	for name, tc := range map[string]struct {
		errs  []error
		tries int
		fails bool
	}{
		"at once":             {tries: 1},
		"a lost connection":   {errs: []error{errors.New("reset")}, tries: 2},
		"a part that was cut": {errs: []error{backup.ErrTruncated, backup.ErrDamaged}, tries: 3},
		"busy":                {errs: []error{status(http.StatusTooManyRequests), status(http.StatusServiceUnavailable)}, tries: 3},
		"refused":             {errs: []error{status(http.StatusForbidden)}, tries: 1, fails: true},
		"compacted":           {errs: []error{status(http.StatusGone)}, tries: 1, fails: true},
		"made by a newer":     {errs: []error{backup.ErrNewer}, tries: 1, fails: true},
		"a server that stays": {errs: []error{status(500), status(500), status(500), status(500), status(500)}, tries: 5, fails: true},
	} {
		c := &client{pause: time.Microsecond}
		tries := 0
		err := c.again(t.Context(), func() error {
			tries++
			if tries <= len(tc.errs) {
				return tc.errs[tries-1]
			}
			return nil
		})
		if tries != tc.tries || (err != nil) != tc.fails {
			t.Errorf("%s: %d tries, %v; want %d", name, tries, err, tc.tries)
		}
	}
}

func TestResourceOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"example.com/widgets/ns/a": "widgets.example.com", "example.com/widgets/a": "widgets.example.com",
		"secrets/ns/a": "", "example.com/widgets": "", "_annex/store": "", "": "",
	} {
		if got := resourceOf(key); got != want {
			t.Errorf("%q is of %q, want %q", key, got, want)
		}
	}
}
