// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// offline is the target of a restore of a whole Store, for which no annex may run.
type offline struct {
	dataDir string
	etcd    login.Etcd
}

func (o *offline) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dataDir, "data-dir", o.dataDir, "The data directory to restore a whole Store to. It has no etcd yet, and no annex uses it.")
	o.etcd.AddFlags(fs, "The etcd to restore a whole Store to. It has no keys of annex yet, and no annex uses it.")
}

func (o *offline) enabled() bool { return o.dataDir != "" || o.etcd.Given() }

func (o *offline) validate() error {
	if o.dataDir != "" && o.etcd.Given() {
		return errors.New("give either --data-dir or --etcd-servers")
	}
	return o.etcd.Validate()
}

// Limits above any etcd's that may have been backed up.
const (
	restoredQuota   = 1 << 40
	restoredRequest = 1 << 30
)

// run restores a whole Store. The file is read once before anything is changed.
func (o *offline) run(ctx context.Context, path string, dryRun bool, out, errOut io.Writer) error {
	a, err := openArchive(path)
	if err != nil {
		return err
	}
	if a.header.Resource != "" {
		return fmt.Errorf("%s is a backup of %s only: it is restored into a running annex, without --data-dir and --etcd-servers", path, a.header.Resource)
	}
	restore := o.toEtcd
	if o.dataDir != "" {
		restore = o.toDataDir
	}
	if dryRun {
		_, err = fmt.Fprintf(out, "%s is complete\n", path)
		return err
	}
	where, err := restore(ctx, a, errOut)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Store %s restored to %s: %s below %s\n", a.header.Store, where, amount(a.trailer), filepath.Clean(a.header.Prefix))
	return err
}

// toDataDir restores to the etcd of a data directory, which is put in place when it is
// complete.
func (o *offline) toDataDir(ctx context.Context, a *archive, errOut io.Writer) (where string, err error) {
	dir, err := datadir.Open(o.dataDir)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, dir.Close()); err != nil {
			err = fmt.Errorf("--data-dir %s: %w", o.dataDir, err)
		}
	}()
	unfinished := dir.RestoringDir()
	// Without this, the directory has at most the socket of an interrupted restore.
	if _, err := os.Lstat(filepath.Join(dir.EtcdDir(), "member")); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("there is an etcd already: move it, or name another directory")
		}
		return "", err
	}
	if err := os.RemoveAll(unfinished); err != nil {
		return "", fmt.Errorf("remove what an interrupted restore left: %w", err)
	}
	socket, err := dir.EtcdSocket()
	if err != nil {
		return "", err
	}
	server, err := embeddedetcd.Start(ctx, embeddedetcd.Config{
		Dir: unfinished, SocketPath: socket, QuotaBytes: restoredQuota, MaxRequestBytes: restoredRequest,
	})
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(ctx, server.Client(), a, errOut), server.Close()); err != nil {
		return "", err
	}
	return o.dataDir, dir.PlaceRestored()
}

func (o *offline) toEtcd(ctx context.Context, a *archive, errOut io.Writer) (string, error) {
	etcd, err := o.etcd.Connect(ctx)
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(ctx, etcd, a, errOut), etcd.Close()); err != nil {
		return "", fmt.Errorf("--etcd-servers %s: %w", o.etcd.ServerList[0], err)
	}
	return o.etcd.ServerList[0], nil
}

func fill(ctx context.Context, etcd *clientv3.Client, a *archive, errOut io.Writer) error {
	in, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer in.Close()
	bar := output.NewBar(errOut, "Restoring")
	defer bar.End()
	raise := func(ctx context.Context, prefix string, floor int64) error {
		return revision.Raise(ctx, etcd, prefix, revision.AllResources, floor)
	}
	_, _, err = backup.Copy(ctx, etcd, in, raise, func(so backup.Trailer) { bar.Show(so.Objects, a.trailer.Objects, so.Bytes) })
	return err
}

// file is a new file that gets its name once it is complete. Only its owner can read it,
// because it may contain Secrets.
type file struct {
	*os.File
	path string
}

func newFile(path string) (*file, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it exists already")
		}
		return nil, fmt.Errorf("write the backup to %s: %w", path, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write the backup to %s: %w", path, err)
	}
	return &file{File: temporary, path: path}, nil
}

// finish gives the file its name. It does not replace an existing file.
func (f *file) finish() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), f.path)
	}
	if err == nil {
		err = datadir.SyncDir(filepath.Dir(f.path))
	}
	if err != nil {
		return fmt.Errorf("write the backup to %s: %w", f.path, err)
	}
	return nil
}

func (f *file) discard() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
