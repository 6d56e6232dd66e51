// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// sample is an object whose words are in the dictionary.
func sample(i int) string {
	var object strings.Builder
	fmt.Fprintf(&object, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w-%d"},"spec":{`, i)
	for j := range 30 {
		fmt.Fprintf(&object, `"propertyNumber%d":{"measuredDiameter":%d,"suspensionMaterial":"steel"},`, j, i*j)
	}
	object.WriteString(`"end":true}}`)
	return object.String()
}

// running is the data directory of a running annex, with a dictionary.
type running struct {
	dataDir string
	etcd    *clientv3.Client
	value   []byte // compressed with the dictionary
	id      uint32
	key     string // of the dictionary
}

func run(t *testing.T) *running {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	dir, err := datadir.Open(path)
	expect.NoError(t, err)
	t.Cleanup(func() { dir.Close() })
	socket, err := dir.EtcdSocket()
	expect.NoError(t, err)
	server := etcdtest.Start(t, func(config *embeddedetcd.Config) { config.Dir, config.SocketPath = dir.EtcdDir(), socket })
	r := &running{dataDir: path, etcd: server.Client()}
	r.learn(t)
	return r
}

// learn trains a dictionary as annex does.
func (r *running) learn(t *testing.T) {
	t.Helper()
	manager := compression.NewManager()
	transformer, release := manager.Transformer(compression.Resource{
		GroupResource: widgets, Store: "default", Prefix: "/annex", KV: r.etcd, Enabled: func() bool { return true },
	})
	defer release()
	write := func(i int) []byte {
		key := fmt.Sprintf("%snamespace-%d/w-%d", keys.Objects("/annex", widgets), i%2, i)
		stored, err := transformer.TransformToStorage(t.Context(), []byte(sample(i)), value.DefaultContext(key))
		expect.NoError(t, err)
		_, err = r.etcd.Put(t.Context(), key, string(stored))
		expect.NoError(t, err)
		return stored
	}
	for i := range 100 {
		write(i)
	}
	manager.Train(t.Context())
	r.value = write(7)
	var own bool
	if r.id, own = compression.DictionaryID(r.value); !own {
		t.Fatal("nothing was learned")
	}
	r.key = keys.Dictionary("/annex", widgets, strconv.FormatUint(uint64(r.id), 10))
}

func (r *running) dictionary(t *testing.T) []byte {
	t.Helper()
	found, err := r.etcd.Get(t.Context(), r.key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", r.key, found, err)
	}
	return found.Kvs[0].Value
}

func execute(t *testing.T, in []byte, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand(bytes.NewReader(in), &out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func file(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	expect.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func line(data []byte) []byte { return append(bytes.Clone(data), '\n') }

// base64Lines formats data as base64 does, slashed as etcdctl --hex does.
func base64Lines(data []byte) []byte {
	text, lines := base64.StdEncoding.EncodeToString(data), []byte(nil)
	for part := range slices.Chunk([]byte(text), 76) {
		lines = append(lines, line(part)...)
	}
	return lines
}

func slashed(data []byte) []byte {
	var text []byte
	for _, b := range data {
		text = fmt.Appendf(text, `\x%02x`, b)
	}
	return line(text)
}

// generic is a value that needs no dictionary of a Store.
func generic(t *testing.T) []byte {
	t.Helper()
	transformer, release := compression.NewManager().Transformer(compression.Resource{
		GroupResource: widgets, Enabled: func() bool { return true },
	})
	defer release()
	stored, err := transformer.TransformToStorage(context.Background(), []byte(sample(7)), value.DefaultContext("/k"))
	expect.NoError(t, err)
	return stored
}

func TestDecode(t *testing.T) {
	t.Parallel()
	annex := run(t)
	dictionary := annex.dictionary(t)
	socket := "unix://" + filepath.Join(annex.dataDir, "etcd", "client.sock")
	if _, err := os.Stat(strings.TrimPrefix(socket, "unix://")); err != nil {
		socket = annex.etcd.Endpoints()[0]
	}
	for name, test := range map[string]struct {
		in   []byte
		args []string
		want string
	}{
		"needs no dictionary":          {generic(t), nil, sample(7)},
		"with a newline":               {line(generic(t)), nil, sample(7)},
		"plain":                        {line([]byte("{}")), nil, "{}\n"},
		"protobuf":                     {[]byte("k8s\x00\x01"), nil, "k8s\x00\x01"},
		"from a file":                  {nil, []string{"--file", file(t, line(generic(t)))}, sample(7)},
		"by data directory":            {line(annex.value), []string{"--data-dir", annex.dataDir}, sample(7)},
		"by etcd":                      {annex.value, []string{"--etcd-servers", socket}, sample(7)},
		"by file":                      {annex.value, []string{"--dictionary-file", file(t, dictionary)}, sample(7)},
		"by file with a newline":       {line(annex.value), []string{"--dictionary-file", file(t, line(dictionary))}, sample(7)},
		"with its key":                 {append([]byte("/annex/example.com/widgets/default/w-7\n"), line(annex.value)...), []string{"--data-dir", annex.dataDir}, sample(7)},
		"in base64":                    {base64Lines(annex.value), []string{"--dictionary-file", file(t, base64Lines(dictionary))}, sample(7)},
		"in hexadecimal":               {[]byte(hex.EncodeToString(generic(t))), nil, sample(7)},
		"by etcdctl --hex":             {slashed(annex.value), []string{"--dictionary-file", file(t, slashed(dictionary))}, sample(7)},
		"by etcdctl as JSON":           {fmt.Appendf(nil, `{"header":{"cluster_id":1},"kvs":[{"value":%q}],"count":1}`, base64.StdEncoding.EncodeToString(generic(t))), nil, sample(7)},
		"plain, in what looks encoded": {[]byte("abcd"), nil, "abcd"},
		"a dictionary that is useless": {generic(t), []string{"--dictionary-file", "/nowhere"}, sample(7)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := execute(t, test.in, test.args...)
			if err != nil || got != test.want {
				t.Errorf("got %.200q, %v", got, err)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	annex := run(t)
	id := strconv.FormatUint(uint64(annex.id), 10)
	idle := filepath.Join(t.TempDir(), "idle")
	dir, err := datadir.Open(idle)
	expect.NoError(t, err)
	expect.NoError(t, dir.Close())
	encrypted := []byte("k8s:enc:secretbox:v1:key1:\x01\x02:\x03")
	for name, test := range map[string]struct {
		in   []byte
		args []string
		want []string
	}{
		"nothing":                     {nil, nil, []string{"standard input is empty"}},
		"no such file":                {nil, []string{"--file", "/nowhere/value"}, []string{"--file", "/nowhere/value"}},
		"encrypted":                   {encrypted, nil, []string{"is encrypted", "k8s:enc:secretbox:v1:key1:", "through annex"}},
		"encrypted, in base64":        {base64Lines(encrypted), nil, []string{"is encrypted", "k8s:enc:secretbox:v1:key1:"}},
		"several keys":                {[]byte(`{"header":{"cluster_id":1},"kvs":[{},{}],"count":2}`), nil, []string{"found 2 keys"}},
		"no key":                      {[]byte(`{"header":{"cluster_id":1}}`), nil, []string{"found 0 keys"}},
		"no dictionary":               {annex.value, nil, []string{"dictionary " + id, "--data-dir", "--etcd-servers", "--dictionary-file"}},
		"too many flags":              {annex.value, []string{"--data-dir=.", "--dictionary-file=x"}, []string{"give one of"}},
		"certificate without an etcd": {annex.value, []string{"--etcd-cafile=ca"}, []string{"are for --etcd-servers"}},
		"another dictionary":          {annex.value, []string{"--dictionary-file", file(t, []byte("another"))}, []string{"--dictionary-file", id}},
		"no dictionary file":          {annex.value, []string{"--dictionary-file", "/nowhere/d"}, []string{"--dictionary-file", "/nowhere/d"}},
		"encrypted dictionary":        {annex.value, []string{"--dictionary-file", file(t, encrypted)}, []string{"--dictionary-file", "is encrypted"}},
		"never started":               {annex.value, []string{"--data-dir", t.TempDir()}, []string{"never started here"}},
		"not running":                 {annex.value, []string{"--data-dir", idle}, []string{"no annex", "runs there"}},
		"another prefix":              {annex.value, []string{"--data-dir", annex.dataDir, "--etcd-prefix=/other"}, []string{"/other/_annex/dictionaries/", "--etcd-prefix"}},
		"cut":                         {annex.value[:len(annex.value)-3], nil, []string{"damaged"}},
		"trailing data":               {append(line(generic(t)), "more"...), nil, []string{"damaged", "follow"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := execute(t, test.in, test.args...)
			if err == nil || got != "" {
				t.Fatalf("got %.100q, %v", got, err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		})
	}
}

// TestEncryptedDictionary: an encrypted dictionary is an error.
func TestEncryptedDictionary(t *testing.T) {
	t.Parallel()
	annex := run(t)
	_, err := annex.etcd.Put(t.Context(), annex.key, "k8s:enc:aescbc:v1:key1:xxx")
	expect.NoError(t, err)
	_, err = execute(t, annex.value, "--data-dir", annex.dataDir)
	if err == nil || !strings.Contains(err.Error(), annex.key) || !strings.Contains(err.Error(), "is encrypted") {
		t.Errorf("got %v", err)
	}
}
