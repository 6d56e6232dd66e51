// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// dictionaries reads the dictionaries of the resource from etcd.
func (r *resource) dictionaries(t *testing.T) map[string][]byte {
	t.Helper()
	found, err := r.annex.etcd(t).Get(t.Context(), "/annex/_annex/dictionaries/"+r.group+"/widgets/", clientv3.WithPrefix())
	expect.NoError(t, err)
	all := map[string][]byte{}
	for _, kv := range found.Kvs {
		all[string(kv.Key)] = kv.Value
	}
	return all
}

// TestBackupIncludesDictionaries restores objects that need a dictionary on another server,
// with and without the dictionary.
func TestBackupIncludesDictionaries(t *testing.T) {
	t.Parallel()
	home, elsewhere := sharedAnnex(t), readableAnnex(t)
	widgets := home.installCRD(t, newCRD(t, anySchema))
	for i := range 80 {
		widgets.create(t, "v1", fmt.Sprintf("w-%d", i), widgetContent(i))
	}
	poll.UntilDone(t, "there is a dictionary", func() (bool, string) {
		return len(widgets.dictionaries(t)) != 0, "none"
	})
	for i := range 80 {
		widgets.mustPatch(t, "v1", fmt.Sprintf("w-%d", i), "{}")
	}
	if _, own := compression.DictionaryID(widgets.raw(t, "w-7")); !own {
		t.Fatal("the dictionary is not used")
	}
	before := widgets.list(t)
	file := filepath.Join(t.TempDir(), "widgets.backup")
	mustRun(t, "backup", "--kubeconfig="+home.Kubeconfig, "--resource="+widgets.name, file)

	incomplete := filepath.Join(t.TempDir(), "incomplete.backup")
	copyBackup(t, file, incomplete, func(record backup.Record) bool { return record.Kind != backup.KindDictionary })
	_, err := run("restore", "--kubeconfig="+elsewhere.Kubeconfig, incomplete)
	wantError(t, err, "no change was made", "cannot be read", "dictionary")

	mustRun(t, "restore", "--kubeconfig="+elsewhere.Kubeconfig, file)
	there := widgets.on(elsewhere)
	if diff := cmp.Diff(without(before), without(there.list(t))); diff != "" {
		t.Errorf("objects (-home +elsewhere):\n%s", diff)
	}
	if diff := cmp.Diff(widgets.dictionaries(t), there.dictionaries(t)); diff != "" {
		t.Errorf("dictionaries (-home +elsewhere):\n%s", diff)
	}
	if _, own := compression.DictionaryID(there.raw(t, "w-7")); !own {
		t.Error("restored objects are not compressed with the dictionary")
	}
}

// copyBackup copies the records of a backup that keep accepts.
func copyBackup(t *testing.T, from, to string, keep func(backup.Record) bool) {
	t.Helper()
	in, err := os.Open(from)
	expect.NoError(t, err)
	defer in.Close()
	reader, err := backup.NewReader(in)
	expect.NoError(t, err)
	out, err := os.Create(to)
	expect.NoError(t, err)
	defer out.Close()
	writer, err := backup.NewWriter(out, reader.Header())
	for err == nil {
		var record backup.Record
		if record, err = reader.Next(); err == nil && keep(record) {
			err = writer.Write(record)
		}
	}
	if errors.Is(err, io.EOF) {
		_, err = writer.Close()
	}
	expect.NoError(t, err)
}
