// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

func newEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return etcdtest.Start(t, nil).Client()
}

// boundTransformer binds values to a secret, a whole key and a dictionary, like encryption
// and compression.
type boundTransformer struct{ secret, dictionary string }

func (b boundTransformer) frame(data value.Context) string {
	return b.secret + "|" + string(data.AuthenticatedData()) + "|" + b.dictionary + "|"
}

func (b boundTransformer) TransformFromStorage(_ context.Context, stored []byte, data value.Context) ([]byte, bool, error) {
	plain, found := bytes.CutPrefix(stored, []byte(b.frame(data)))
	if !found {
		return nil, false, errors.New("no matching key")
	}
	return plain, false, nil
}

func (b boundTransformer) TransformToStorage(_ context.Context, plain []byte, data value.Context) ([]byte, error) {
	return append([]byte(b.frame(data)), plain...), nil
}

func widget(i int) string {
	return fmt.Sprintf(`{"kind":"Widget","metadata":{"name":"w%04d","namespace":"ns","uid":"u%d"},"spec":{"i":%d}}`, i, i, i)
}

func put(t *testing.T, etcd *clientv3.Client, key, content string, options ...clientv3.OpOption) {
	t.Helper()
	_, err := etcd.Put(t.Context(), key, content, options...)
	expect.NoError(t, err)
}

// putWidgets writes n widgets below a prefix.
func putWidgets(t *testing.T, etcd *clientv3.Client, prefix string, transformer boundTransformer, n int) {
	t.Helper()
	for i := range n {
		key := fmt.Sprintf("%sns/w%04d", keys.Objects(prefix, widgets), i)
		stored, err := transformer.TransformToStorage(t.Context(), []byte(widget(i)), value.DefaultContext(key))
		expect.NoError(t, err)
		put(t, etcd, key, string(stored))
	}
}

func contents(t *testing.T, etcd *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	found, err := etcd.Get(t.Context(), prefix, clientv3.WithPrefix())
	expect.NoError(t, err)
	all := map[string]string{}
	for _, kv := range found.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

func source(etcd *clientv3.Client, now func() time.Time) *Source {
	return &Source{
		Store: "fast", KV: etcd, Prefix: "/a", CreatedBy: "v1", Now: now,
		Decoder: func(schema.GroupResource) value.Transformer { return boundTransformer{"old", "pieces"} },
	}
}

// parts reads a backup part by part.
func parts(t *testing.T, s *Source, resource *schema.GroupResource) [][]byte {
	t.Helper()
	var all [][]byte
	at := Position{Resource: resource}
	for {
		var out bytes.Buffer
		last, err := s.Part(t.Context(), &out, at)
		expect.NoError(t, err)
		all = append(all, out.Bytes())
		header, _, trailer, err := readAll(bytes.NewReader(out.Bytes()))
		expect.NoError(t, err)
		expect.Equal(t, trailer.Continue == "", last, "it is the last part")
		if trailer.Continue == "" {
			return all
		}
		at.Revision, at.After, at.Data = header.Revision, trailer.Continue, header.Data
	}
}

// hourly makes every part end after its first page.
func hourly() func() time.Time {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Hour)
		return now
	}
}

func target(etcd *clientv3.Client, secret string, raised *int64) *Target {
	return &Target{
		KV: etcd, Prefix: "/b",
		Decoder: func(_ schema.GroupResource, dictionaries map[string][]byte, _ string) (value.Transformer, error) {
			dictionary, found := dictionaries["_annex/dictionaries/example.com/widgets/1"]
			if !found {
				return nil, errors.New("there is no dictionary")
			}
			return boundTransformer{"old", string(dictionary)}, nil
		},
		Encoder: func(schema.GroupResource) (value.Transformer, error) { return boundTransformer{secret, "none"}, nil },
		Raise: func(_ context.Context, _ schema.GroupResource, floor int64) error {
			*raised = max(*raised, floor)
			return nil
		},
	}
}

// TestRestoreToOtherStore restores a resource to a Store with another prefix, encryption
// and no dictionary, twice.
func TestRestoreToOtherStore(t *testing.T) {
	t.Parallel()
	from, to := newEtcd(t), newEtcd(t)
	putWidgets(t, from, "/a", boundTransformer{"old", "pieces"}, 150)
	put(t, from, keys.Dictionary("/a", widgets, "1"), "pieces")
	put(t, from, "/a/example.com/widgetsets/ns/no", "another resource")
	put(t, from, keys.Store("/a"), `{"uid":"u"}`)

	all := parts(t, source(from, hourly()), &widgets)
	if len(all) < 3 {
		t.Errorf("%d parts, want several", len(all))
	}
	want := map[string]string{}
	for i := range 150 {
		key := fmt.Sprintf("/b/example.com/widgets/ns/w%04d", i)
		want[key] = boundTransformer{"new", "none"}.frame(value.DefaultContext(key)) + widget(i)
	}
	var raised int64
	restorer := target(to, "new", &raised)
	// Clients put the dictionaries of the first part into each.
	whole := joined(t, all)
	for _, step := range []struct {
		check          bool
		found, present int64
	}{{true, 0, 0}, {false, 0, 150}, {true, 150, 150}, {false, 150, 150}} {
		result, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(whole), Options{Check: step.check})
		expect.NoError(t, err, "check %t", step.check)
		if diff := cmp.Diff(Result{Objects: 150, Found: step.found, Present: step.present}, result); diff != "" {
			t.Errorf("check %t (-want +got):\n%s", step.check, diff)
		}
		if step.check && step.present == 0 && (raised != 0 || len(contents(t, to, "/")) != 0) {
			t.Errorf("a check wrote: %v, raised to %d", contents(t, to, "/"), raised)
		}
	}
	if diff := cmp.Diff(want, contents(t, to, "/")); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	if raised <= RevisionGap {
		t.Errorf("raised to %d, want more than %d", raised, RevisionGap)
	}

	// A changed object is not overwritten, and an absent one is restored.
	changed := "/b/example.com/widgets/ns/w0007"
	put(t, to, changed, boundTransformer{"new", "none"}.frame(value.DefaultContext(changed))+"{}")
	if _, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(whole), Options{}); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "ns/w0007") {
		t.Errorf("over another object: %v", err)
	}
	_, err := to.Delete(t.Context(), changed)
	expect.NoError(t, err)
	if _, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(whole), Options{}); err != nil {
		t.Errorf("after an interruption: %v", err)
	}
	if diff := cmp.Diff(want, contents(t, to, "/")); diff != "" {
		t.Errorf("repeated (-want +got):\n%s", diff)
	}
}

// joined joins parts to a backup.
func joined(t *testing.T, all [][]byte) []byte {
	t.Helper()
	var header Header
	var records []Record
	for i, part := range all {
		h, r, _, err := readAll(bytes.NewReader(part))
		expect.NoError(t, err)
		if i == 0 {
			header = h
		}
		if h.Revision != header.Revision {
			t.Errorf("part %d is at revision %d, the first at %d", i, h.Revision, header.Revision)
		}
		records = append(records, r...)
	}
	return written(t, header, records...)
}

// TestInvalidParts: nothing is written.
func TestInvalidParts(t *testing.T) {
	t.Parallel()
	from, to := newEtcd(t), newEtcd(t)
	putWidgets(t, from, "/a", boundTransformer{"old", "pieces"}, 3)
	put(t, from, keys.Dictionary("/a", widgets, "1"), "pieces")
	good := joined(t, parts(t, source(from, time.Now), &widgets))
	header, records, _, err := readAll(bytes.NewReader(good))
	expect.NoError(t, err)
	last := len(records) - 1
	with := func(change func(records []Record)) []byte {
		changed := append([]Record(nil), records...)
		change(changed)
		return written(t, header, changed...)
	}
	frame := boundTransformer{"old", "pieces"}.frame(value.DefaultContext("/a/" + records[last].Key))
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"truncated":          {good[:len(good)-1], "its end is missing"},
		"no dictionary":      {written(t, header, records[1:]...), "there is no dictionary"},
		"another dictionary": {with(func(r []Record) { r[0].Value = []byte("other") }), "example.com/widgets/ns/w0000 cannot be read"},
		"another key":        {with(func(r []Record) { r[last].Value = []byte("new|") }), "w0002 cannot be read"},
		"corrupt":            {with(func(r []Record) { r[last].Value = []byte(frame + "{") }), "w0002 cannot be read"},
		"another object":     {with(func(r []Record) { r[last].Value = []byte(frame + widget(1)) }), `it is the object "ns/w0001"`},
		"another resource":   {with(func(r []Record) { r[last].Key = "example.com/widgetsets/ns/a" }), "not an object of widgets.example.com"},
	} {
		for _, check := range []bool{true, false} {
			var raised int64
			_, err := target(to, "new", &raised).Restore(t.Context(), widgets, bytes.NewReader(tc.content), Options{Check: check})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
			if found := contents(t, to, "/"); len(found) > 0 || raised > 0 {
				t.Errorf("%s: wrote %v, raised to %d", name, found, raised)
			}
		}
	}
}

// TestUnreadable backs up an unreadable object, and restores with SkipUnreadable.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	from, to := newEtcd(t), newEtcd(t)
	putWidgets(t, from, "/a", boundTransformer{"old", "pieces"}, 3)
	put(t, from, keys.Dictionary("/a", widgets, "1"), "pieces")
	put(t, from, "/a/example.com/widgets/ns/w0001", "corrupt")
	put(t, from, "/a/secrets/ns/of-another-kind", "not decoded")
	whole := joined(t, parts(t, source(from, hourly()), &widgets))
	_, records, trailer, err := readAll(bytes.NewReader(whole))
	if err != nil || trailer.Objects != 3 || trailer.Unreadable != 1 {
		t.Fatalf("trailer %+v, %v", trailer, err)
	}
	for _, record := range records {
		if corrupt := strings.HasSuffix(record.Key, "w0001"); record.Unreadable != corrupt || corrupt && string(record.Value) != "corrupt" {
			t.Errorf("record %+v", record)
		}
	}
	if _, _, trailer, err := readAll(bytes.NewReader(parts(t, source(from, time.Now), nil)[0])); err != nil || trailer.Unreadable != 1 {
		t.Errorf("of the whole Store: %+v, %v", trailer, err)
	}
	var raised int64
	restorer := target(to, "new", &raised)
	if _, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(whole), Options{}); !errors.Is(err, ErrUnreadable) || len(contents(t, to, "/")) > 0 {
		t.Errorf("restored: %v, %v", err, contents(t, to, "/"))
	}
	for _, check := range []bool{true, false} {
		result, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(whole), Options{Check: check, SkipUnreadable: true})
		expect.NoError(t, err)
		want := Result{Objects: 2, Unreadable: []string{"example.com/widgets/ns/w0001"}}
		if !check {
			want.Present = 2
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("check %t (-want +got):\n%s", check, diff)
		}
	}
	if found := contents(t, to, "/"); len(found) != 2 || found["/b/example.com/widgets/ns/w0001"] != "" {
		t.Errorf("restored %v", found)
	}
}

// bomb decodes every value to 64 MiB.
type bomb struct{ boundTransformer }

func (bomb) TransformFromStorage(_ context.Context, _ []byte, data value.Context) ([]byte, bool, error) {
	metadata := metav1.ObjectMeta{Name: path.Base(string(data.AuthenticatedData())), UID: "u"}
	raw, err := (&metav1.PartialObjectMetadata{ObjectMeta: metadata}).Marshal()
	if err != nil {
		return nil, false, err
	}
	encoded, err := (&runtime.Unknown{Raw: raw, ContentEncoding: strings.Repeat("x", 64<<20)}).Marshal()
	return append(bytes.Clone(protobufMagic), encoded...), false, err
}

// TestBomb restores a small part with very large decoded values.
func TestBomb(t *testing.T) {
	t.Parallel()
	to := newEtcd(t)
	restorer := &Target{
		KV: to, Prefix: "/b",
		Decoder: func(schema.GroupResource, map[string][]byte, string) (value.Transformer, error) { return bomb{}, nil },
		Raise: func(context.Context, schema.GroupResource, int64) error {
			return errors.New("the resource versions were raised")
		},
	}
	var records []Record
	for i := range maxPlain>>26 + 1 {
		records = append(records, Record{Kind: KindObject, Key: fmt.Sprintf("example.com/widgets/w%d", i), Value: []byte("x")})
	}
	for _, check := range []bool{true, false} {
		_, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(written(t, Header{Prefix: "/a/"}, records...)), Options{Check: check, SkipUnreadable: !check})
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v, want %v", err, ErrTooLarge)
		}
	}
	if found := contents(t, to, "/"); len(found) > 0 {
		t.Errorf("a bomb wrote %d keys", len(found))
	}
}

// TestReplaced replaces the data of a Store between two parts of a backup.
func TestReplaced(t *testing.T) {
	t.Parallel()
	mark := func(etcd *clientv3.Client, content string) { put(t, etcd, keys.Store("/a"), content) }
	first := newEtcd(t)
	mark(first, `{"store":"fast","uid":"u","epoch":"one"}`)
	putWidgets(t, first, "/a", boundTransformer{"old", "pieces"}, 20)
	empty := newEtcd(t)
	mark(empty, `{"store":"fast","uid":"u","epoch":"two"}`)
	filled := newEtcd(t)
	mark(filled, `{"store":"fast","uid":"u","epoch":"two"}`)
	putWidgets(t, filled, "/a", boundTransformer{"old", "pieces"}, 30)
	for name, test := range map[string]struct {
		second   *clientv3.Client
		replaced bool
	}{
		"the same":                {second: first},
		"an empty etcd":           {second: empty, replaced: true},
		"an etcd with other data": {second: filled, replaced: true},
	} {
		s := source(first, hourly())
		var out bytes.Buffer
		_, err := s.Part(t.Context(), &out, Position{Resource: &widgets})
		expect.NoError(t, err)
		header, _, trailer, err := readAll(bytes.NewReader(out.Bytes()))
		if err != nil || trailer.Continue == "" {
			t.Fatalf("trailer %+v, %v; want a part that is not the last", trailer, err)
		}
		s.KV = test.second
		out.Reset()
		_, err = s.Part(t.Context(), &out, Position{Resource: &widgets, Revision: header.Revision, After: trailer.Continue, Data: header.Data})
		if errors.Is(err, ErrReplaced) != test.replaced || test.replaced != (out.Len() == 0) || !test.replaced && err != nil {
			t.Errorf("%s: %v and %d bytes, want it refused: %t", name, err, out.Len(), test.replaced)
		}
	}
}

// TestCheckTooLarge checks objects against an etcd that accepts 1.5 MiB per request.
func TestCheckTooLarge(t *testing.T) {
	t.Parallel()
	to := newEtcd(t)
	var raised int64
	restorer := target(to, "new", &raised)
	for size, fits := range map[int]bool{batchBytes + 1: true, 3 << 20: false} {
		object := fmt.Sprintf(`{"metadata":{"name":"large","uid":"u"},"data":%q}`, strings.Repeat("x", size))
		key := "example.com/widgets/large"
		part := written(t, Header{Prefix: "/a/"}, Record{Kind: KindDictionary, Key: keys.Dictionary("", widgets, "1")[1:], Value: []byte("pieces")},
			Record{Kind: KindObject, Key: key, Value: []byte(boundTransformer{"old", "pieces"}.frame(value.DefaultContext("/a/"+key)) + object)})
		_, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(part), Options{Check: true})
		var refused *WriteError
		if fits != (err == nil) || !fits && (!errors.As(err, &refused) || refused.Key != key || refused.Bytes < size) {
			t.Errorf("%d bytes: %v, want that it fits: %t", size, err, fits)
		}
	}
	if found := contents(t, to, "/"); len(found) > 0 {
		t.Errorf("a check wrote %d keys", len(found))
	}
}

// TestRestoreDictionaries: they are re-encrypted, and existing ones are kept.
func TestRestoreDictionaries(t *testing.T) {
	t.Parallel()
	to := newEtcd(t)
	key := "_annex/dictionaries/example.com/widgets/"
	put(t, to, "/b/"+key+"2", "existing")
	encryption := boundTransformer{secret: "s"}
	stored := func(key, content string) []byte {
		encrypted, err := encryption.TransformToStorage(t.Context(), []byte(content), value.DefaultContext(key))
		expect.NoError(t, err)
		return encrypted
	}
	dictionary := func(id string, content []byte) Record {
		return Record{Kind: KindDictionary, Key: key + id, Value: content}
	}
	var raised int64
	restorer := target(to, "new", &raised)
	restorer.Encryption = func(schema.GroupResource) value.Transformer { return encryption }
	header := Header{Prefix: "/a/"}
	part := written(t, header, dictionary("1", stored("/a/"+key+"1", "one")), dictionary("2", stored("/a/"+key+"2", "two")))
	_, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(part), Options{})
	expect.NoError(t, err)
	want := map[string]string{"/b/" + key + "1": string(stored("/b/"+key+"1", "one")), "/b/" + key + "2": "existing"}
	if diff := cmp.Diff(want, contents(t, to, "/")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	good := dictionary("1", stored("/a/"+key+"1", "one"))
	for name, tc := range map[string]struct {
		records []Record
		want    error
	}{
		"of another resource": {[]Record{good, {Kind: KindDictionary, Key: "_annex/dictionaries/example.com/gadgets/1"}}, ErrDamaged},
		"of another key":      {[]Record{dictionary("1", stored("/elsewhere", "one"))}, ErrUnreadable},
	} {
		if _, err := restorer.Restore(t.Context(), widgets, bytes.NewReader(written(t, header, tc.records...)), Options{}); !errors.Is(err, tc.want) {
			t.Errorf("a dictionary %s: %v, want %v", name, err, tc.want)
		}
	}

	kv := Dictionaries("/a/", map[string][]byte{key + "1": []byte("one"), key + "2": []byte("two")})
	all, err := kv.Get(t.Context(), "/a/"+key, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(all.Kvs) != 2 || len(all.Kvs[0].Value) > 0 {
		t.Errorf("the dictionaries are %v, %v", all.Kvs, err)
	}
	one, err := kv.Get(t.Context(), "/a/"+key+"2")
	if err != nil || len(one.Kvs) != 1 || string(one.Kvs[0].Value) != "two" {
		t.Errorf("one of them is %v, %v", one.Kvs, err)
	}
}

// TestConsistent deletes and compacts between parts.
func TestConsistent(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	putWidgets(t, etcd, "/a", boundTransformer{"old", "pieces"}, 40)
	s := source(etcd, hourly())
	var first, second bytes.Buffer
	_, err := s.Part(t.Context(), &first, Position{Resource: &widgets})
	expect.NoError(t, err)
	header, _, trailer, err := readAll(bytes.NewReader(first.Bytes()))
	expect.NoError(t, err)
	if header.Expected != 40 {
		t.Errorf("expected %d objects, want 40", header.Expected)
	}
	_, err = etcd.Delete(t.Context(), "/a/", clientv3.WithPrefix())
	expect.NoError(t, err)
	next := Position{Resource: &widgets, Revision: header.Revision, After: trailer.Continue, Data: header.Data}
	_, err = s.Part(t.Context(), &second, next)
	expect.NoError(t, err)
	if _, records, _, err := readAll(&second); err != nil || len(records) == 0 {
		t.Errorf("second part: %d records, %v", len(records), err)
	}
	_, err = etcd.Compact(t.Context(), header.Revision+1)
	expect.NoError(t, err)
	second.Reset()
	if _, err := s.Part(t.Context(), &second, next); !errors.Is(err, ErrCompacted) || second.Len() > 0 {
		t.Errorf("after compaction: %v, and %d bytes", err, second.Len())
	}
	if _, err := s.Part(t.Context(), &second, Position{Resource: &widgets, After: "somewhere/else"}); err == nil {
		t.Error("a part begins at an invalid position")
	}
}

// TestCopy copies a whole Store, after an interruption.
func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := newEtcd(t), newEtcd(t)
	putWidgets(t, from, "/a", boundTransformer{"old", "pieces"}, 300)
	put(t, from, keys.Dictionary("/a", widgets, "1"), "pieces")
	put(t, from, "/a/secrets/ns/s", "k8s:enc:bytes")
	want := contents(t, from, "/")
	put(t, from, keys.Store("/a"), `{"uid":"u"}`)
	put(t, from, "/other/x", "of another user")
	lease, err := from.Grant(t.Context(), 3600)
	expect.NoError(t, err)
	put(t, from, "/a/events/ns/e", "an event", clientv3.WithLease(lease.ID))

	whole := joined(t, parts(t, source(from, time.Now), nil))
	var raised []string
	raise := func(_ context.Context, prefix string, floor int64) error {
		if floor <= RevisionGap {
			t.Errorf("raised to %d", floor)
		}
		raised = append(raised, prefix)
		return nil
	}
	ignore := func(Trailer) {}
	if _, _, err := Copy(t.Context(), to, bytes.NewReader(whole[:len(whole)-40]), raise, ignore); !errors.Is(err, ErrTruncated) {
		t.Fatalf("cut: %v", err)
	}
	if unfinished, err := Unfinished(t.Context(), to, "/a"); err != nil || !strings.HasPrefix(unfinished, "fast ") {
		t.Errorf("after an interruption: unfinished %q, %v", unfinished, err)
	}
	_, trailer, err := Copy(t.Context(), to, bytes.NewReader(whole), raise, ignore)
	expect.NoError(t, err, "again")
	if trailer.Objects != 301 {
		t.Errorf("%d objects, want 301", trailer.Objects)
	}
	if diff := cmp.Diff(want, contents(t, to, "/")); diff != "" {
		t.Errorf("copied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/a/"}, raised); diff != "" {
		t.Errorf("raised (-want +got):\n%s", diff)
	}
	if unfinished, err := Unfinished(t.Context(), to, "/a"); err != nil || unfinished != "" {
		t.Errorf("at the end: unfinished %q, %v", unfinished, err)
	}
	if _, _, err := Copy(t.Context(), to, bytes.NewReader(whole), raise, ignore); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("to a Store with keys: %v", err)
	}
}
