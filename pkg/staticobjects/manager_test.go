// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// snapshot decodes what a source has completely.
func snapshot(t *testing.T, source, data string) Snapshot {
	t.Helper()
	objects, err := Decode(source, "f", []byte(data))
	expect.NoError(t, err)
	return Snapshot{Objects: objects, Complete: true}
}

func sorted(keys []Key) string {
	var texts []string
	for _, key := range keys {
		texts = append(texts, key.Name)
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

var keyA = Key{Group: "example.com", Kind: "Widget", Namespace: "default", Name: "a"}

func TestSetSource(t *testing.T) {
	t.Parallel()
	m := NewManager()
	changedA := strings.Replace(widgetA, "size: 1", "size: 2", 1)
	set := func(what, source, data, want string) {
		t.Helper()
		expect.Equal(t, want, sorted(m.SetSource(source, snapshot(t, source, data))), what)
	}
	set("first", "file", widgetA+"---"+widgetB, "a b")
	set("same", "file", widgetA+"---"+widgetB, "")
	set("changed", "file", changedA+"---"+widgetB, "a")
	set("removed", "file", changedA, "b")
	set("other source", "http", widgetA+"---"+widgetB, "b")
	problems, _ := m.Source("http")
	expectSnapshot(t, "there twice", Snapshot{Problems: problems.Problems}, "", "f#1: Widget.example.com default/a is also in source file f#1, which is used")
	set("the first is gone", "file", "# none", "a")
	expect.Equal(t, "http", m.Object(keyA).Source, "source")

	// A mirror without an object is decided on once the source is complete.
	m = NewManager()
	m.SetMirror(Mirror{Key: keyA, UID: "u", Source: "file"})
	expect.Equal(t, "", sorted(m.SetSource("file", Snapshot{})), "incomplete")
	set("complete", "file", "# none", "a")
	set("still complete", "file", "# none", "")
}

func TestTwiceInAFile(t *testing.T) {
	t.Parallel()
	m := NewManager()
	m.SetSource("file", snapshot(t, "file", widgetA+"---"+strings.Replace(widgetA, "size: 1", "size: 2", 1)))
	expect.Equal(t, "f#1", m.Object(keyA).Origin, "the first is used")
	got, _ := m.Source("file")
	if len(got.Problems) != 1 || !got.Complete {
		t.Errorf("problems %v, complete %t", got.Problems, got.Complete)
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const crd = "\n---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c}}"
	crdKey := Key{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "c"}
	full, empty := snapshot(t, "file", widgetA+crd), snapshot(t, "file", "# none")
	object := full.Objects[0]
	mirror := func(change ...string) metav1.Object {
		annotations := map[string]string{
			"annex.dev/config.mirror": string(object.UID), "annex.dev/config.source": "file", "annex.dev/config.hash": object.Hash,
		}
		for i := 0; i < len(change); i += 2 {
			annotations["annex.dev/config."+change[i]] = change[i+1]
		}
		return &metav1.ObjectMeta{UID: types.UID("u"), Annotations: annotations}
	}
	deleting := mirror()
	now := metav1.Now()
	deleting.SetDeletionTimestamp(&now)
	ordinary := &metav1.ObjectMeta{UID: "o", Annotations: map[string]string{"annex.dev/config.source": "file"}}
	tests := map[string]struct {
		source Snapshot
		key    Key
		live   metav1.Object
		want   Action
	}{
		"new":                              {full, keyA, nil, Create},
		"name of an ordinary object":       {full, keyA, ordinary, NameTaken},
		"up to date":                       {full, keyA, mirror(), UpToDate},
		"changed":                          {full, keyA, mirror("hash", "0"), Update},
		"from another source":              {full, keyA, mirror("source", "http", "mirror", "0"), Update},
		"orphaned and back":                {full, keyA, mirror("orphaned", "why"), Update},
		"being deleted":                    {full, keyA, deleting, WaitDeleted},
		"gone":                             {empty, keyA, mirror(), Delete},
		"gone and being deleted":           {empty, keyA, deleting, WaitDeleted},
		"gone with its mirror":             {empty, keyA, nil, Nothing},
		"ordinary object":                  {empty, keyA, ordinary, Nothing},
		"gone from an incomplete source":   {Snapshot{}, keyA, mirror(), Keep},
		"definition that is gone":          {empty, crdKey, mirror(), Orphan},
		"definition that was orphaned":     {empty, crdKey, mirror("orphaned", "why"), Orphaned},
		"definition, incomplete source":    {Snapshot{}, crdKey, mirror(), Keep},
		"source without a flag":            {empty, keyA, mirror("source", "http"), Orphan},
		"orphaned, never deleted by annex": {empty, keyA, mirror("orphaned", "why"), Orphaned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := NewManager()
			m.SetSource("file", test.source)
			got := m.Decide(test.key, test.live, func(source string) bool { return source == "file" })
			expect.Equal(t, test.want, got.Action, got.Message)
		})
	}
}

// A source that was not read yet deletes nothing.
func TestDecideBeforeReading(t *testing.T) {
	t.Parallel()
	live := &metav1.ObjectMeta{Annotations: map[string]string{"annex.dev/config.mirror": "m", "annex.dev/config.source": "file"}}
	got := NewManager().Decide(keyA, live, func(string) bool { return true })
	expect.Equal(t, Keep, got.Action, got.Message)
}

func TestSources(t *testing.T) {
	t.Parallel()
	var calls []string
	s := NewSources(NewDir("/static", 0))
	expect.Equal(t, map[string]string{"file": "/static"}, s.Locations(), "locations")
	remove := s.AddHandler(func(source string) { calls = append(calls, source) })
	s.publish("file", snapshot(t, "file", widgetA))
	s.publish("file", snapshot(t, "file", widgetA))
	s.publish("file", snapshot(t, "file", widgetB))
	remove()
	s.publish("file", snapshot(t, "file", widgetA))
	expect.Equal(t, []string{"file", "file"}, calls, "only changes are published")
	expectSnapshot(t, "last", s.Snapshots()["file"], "Widget.example.com default/a f#1")
}
