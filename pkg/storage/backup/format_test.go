// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	sampleHeader = Header{
		Store: "fast", Resource: "widgets.example.com", Prefix: "/annex/", Revision: 7, ResourceVersion: 1_000_000_007,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), CreatedBy: "v1",
	}
	sampleRecords = []Record{
		{Kind: KindManifest, Key: "customresourcedefinitions/widgets.example.com", Value: []byte(`{}`)},
		{Kind: KindDictionary, Key: "example.com/widgets/1", Value: []byte("pieces")},
		{Kind: KindObject, Key: "example.com/widgets/default/a", Value: []byte(`{"a":1}`)},
		{Kind: KindObject, Key: "example.com/widgets/default/b", Unreadable: true, Value: bytes.Repeat([]byte("b\x00"), 100_000)},
		{Kind: KindObject, Key: "example.com/widgets/default/empty", Value: []byte{}},
	}
)

func written(t testing.TB, header Header, records ...Record) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, header)
	expect.NoError(t, err)
	for _, record := range records {
		expect.NoError(t, w.Write(record))
	}
	_, err = w.Close()
	expect.NoError(t, err)
	return out.Bytes()
}

func readAll(in io.Reader) (header Header, records []Record, trailer Trailer, err error) {
	r, err := NewReader(in)
	if err != nil {
		return Header{}, nil, Trailer{}, err
	}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), records, r.Trailer(), nil
		}
		if err != nil {
			return r.Header(), records, r.Trailer(), err
		}
		records = append(records, record)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	header, records, trailer, err := readAll(bytes.NewReader(written(t, sampleHeader, sampleRecords...)))
	expect.NoError(t, err)
	want := sampleHeader
	want.FormatVersion = FormatVersion
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sampleRecords, records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if want := (Trailer{Manifests: 1, Dictionaries: 1, Objects: 3, Unreadable: 1, Bytes: 200_007}); trailer != want {
		t.Errorf("trailer %+v, want %+v", trailer, want)
	}
	if err := verify(bytes.NewReader(written(t, sampleHeader))); err != nil {
		t.Errorf("an empty backup: %v", err)
	}
}

// verify reads a whole backup.
func verify(in io.Reader) error {
	r, err := NewReader(in)
	for err == nil {
		_, err = r.Next()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TestDamage truncates a backup at every byte and changes every byte.
func TestDamage(t *testing.T) {
	t.Parallel()
	whole := written(t, sampleHeader, sampleRecords[0], sampleRecords[1], sampleRecords[2])
	for n := range whole {
		if err := verify(bytes.NewReader(whole[:n])); !errors.Is(err, ErrTruncated) {
			t.Errorf("truncated to %d of %d bytes: %v, want ErrTruncated", n, len(whole), err)
		}
		for _, bit := range []byte{1, 0x80} {
			flipped := bytes.Clone(whole)
			flipped[n] ^= bit
			err := verify(bytes.NewReader(flipped))
			known := false
			for _, kind := range []error{ErrDamaged, ErrTruncated, ErrNotBackup, ErrNewer} {
				known = known || errors.Is(err, kind)
			}
			if !known {
				t.Errorf("byte %d changed: %v", n, err)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("byte %d changed: the error has several lines: %q", n, err)
			}
		}
	}
	if err := verify(bytes.NewReader(append(whole, 0))); !errors.Is(err, ErrDamaged) {
		t.Errorf("with data after the end: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	header := func(fields string) string {
		whole := written(t, Header{})
		begin := magic + "h\x00"
		content := `{"formatVersion":1,` + fields + "}"
		return begin + string(rune(len(content))) + content + string(whole[len(begin):])
	}
	newer := bytes.Replace(written(t, sampleHeader), []byte(`"formatVersion":1`), []byte(`"formatVersion":2`), 1)
	for name, tc := range map[string]struct {
		content string
		want    error
	}{
		"empty":             {"", ErrTruncated},
		"text":              {"apiVersion: v1\n", ErrNotBackup},
		"short text":        {"a", ErrNotBackup},
		"copied as text":    {strings.Replace(string(written(t, sampleHeader)), "\r\n", "\n", 1), ErrNotBackup},
		"newer":             {string(newer), ErrNewer},
		"a large length":    {magic + "h\x00\xff\xff\xff\xff\xff\xff\xff\xff\x01", ErrDamaged},
		"a wrong length":    {magic + "h\x00\xff\xff\xff\x7f", ErrTruncated},
		"an endless length": {magic + "h" + strings.Repeat("\xff", 20), ErrDamaged},
		"only a header":     {magic + "h\x00\x13{\"formatVersion\":1}", ErrTruncated},
		"no header":         {magic + "o\x01\x00a", ErrDamaged},
		"highest version":   {header(`"resourceVersion":9223372036854775807`), ErrDamaged},
		"negative version":  {header(`"resourceVersion":-1`), ErrDamaged},
		"negative revision": {header(`"revision":-1`), ErrDamaged},
		"invalid header":    {magic + "h\x00\x01{", ErrDamaged},
	} {
		if err := verify(strings.NewReader(tc.content)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	for name, records := range map[string][]Record{
		"a header":     {{Kind: KindHeader, Key: "a"}},
		"an end":       {{Kind: kindTrailer, Key: "a"}},
		"no kind":      {{Key: "a"}},
		"no key":       {{Kind: KindObject}},
		"a long key":   {{Kind: KindObject, Key: strings.Repeat("k", maxKey+1)}},
		"out of order": {sampleRecords[2], sampleRecords[1]},
	} {
		w, err := NewWriter(io.Discard, sampleHeader)
		expect.NoError(t, err)
		for _, record := range records {
			err = w.Write(record)
		}
		if err == nil {
			t.Errorf("%s was written", name)
		}
	}
}

// FuzzRestore checks that no part makes a target panic or write.
func FuzzRestore(f *testing.F) {
	f.Add(written(f, Header{Prefix: "/a/"}, Record{Kind: KindDictionary, Key: "_annex/dictionaries/example.com/widgets/1", Value: []byte("d")},
		Record{Kind: KindObject, Key: "example.com/widgets/w", Value: []byte(`{"metadata":{"name":"w","uid":"u"}}`)}))
	f.Add(written(f, Header{Prefix: "/a/", ResourceVersion: maxResourceVersion}))
	plain := identity.NewEncryptCheckTransformer()
	f.Fuzz(func(t *testing.T, content []byte) {
		// Correct the checksum, or the part would be rejected.
		if len(content) > sha256.Size {
			sum := sha256.Sum256(content[:len(content)-sha256.Size])
			content = append(bytes.Clone(content[:len(content)-sha256.Size]), sum[:]...)
		}
		target := &Target{
			Prefix:     "/b",
			Decoder:    func(schema.GroupResource, map[string][]byte, string) (value.Transformer, error) { return plain, nil },
			Encryption: func(schema.GroupResource) value.Transformer { return plain },
		}
		p, err := target.decode(t.Context(), widgets, bytes.NewReader(content), len(content)%2 == 0)
		if err != nil {
			return
		}
		if floor := p.header.ResourceVersion + RevisionGap; floor < RevisionGap {
			t.Errorf("the resource versions would be raised to %d", floor)
		}
		for _, record := range p.objects {
			if _, err := decode(t.Context(), p.decoder, p.header.Prefix, record); err != nil {
				t.Errorf("a checked object cannot be decoded: %v", err)
			}
		}
	})
}

// FuzzReader checks that the Reader does not panic, and accepts only what a Writer writes.
func FuzzReader(f *testing.F) {
	f.Add(written(f, sampleHeader, sampleRecords...))
	f.Add(written(f, sampleHeader))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, content []byte) {
		header, records, _, err := readAll(bytes.NewReader(content))
		if err != nil {
			return
		}
		again, err := func() (Header, error) {
			h, _, _, err := readAll(bytes.NewReader(written(t, header, records...)))
			return h, err
		}()
		if err != nil || cmp.Diff(header, again) != "" {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
