// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// ErrNotEmpty says that there are other keys where a backup is to be copied to.
var ErrNotEmpty = errors.New("there are keys of something else already")

// Copy writes everything of a backup to an etcd that no annex uses, byte by byte and
// under the keys that it was read from: what was encrypted stays encrypted, and opens
// with the keys that it opened with. A note stands in the etcd from before the first
// key until after the last, so that no annex serves half of it (see Unfinished); with
// that note of the same backup, a copy that ended early is repeated.
//
// raise is called before anything can be served; done after each batch.
func Copy(ctx context.Context, etcd clientv3.KV, in io.Reader, raise func(ctx context.Context, prefix string, floor int64) error, done func(Trailer)) (Header, Trailer, error) {
	reader, err := NewReader(in)
	if err != nil {
		return Header{}, Trailer{}, err
	}
	header := reader.Header()
	note := keys.Restore(header.Prefix)
	id := header.Store + " " + strconv.FormatInt(header.Revision, 10) + " " + header.Created.String()
	if err := beginCopy(ctx, etcd, header.Prefix, note, id); err != nil {
		return header, Trailer{}, err
	}
	var ops []clientv3.Op
	size := 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		// The note is compared, so that two copies cannot get into each other's way.
		answer, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value(note), "=", id)).Then(ops...).Commit()
		if err != nil {
			return fmt.Errorf("write to etcd: %w", err)
		}
		if !answer.Succeeded {
			return fmt.Errorf("%w: another restore began", ErrNotEmpty)
		}
		ops, size = ops[:0], 0
		done(reader.Trailer())
		return nil
	}
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return header, Trailer{}, err
		}
		if record.Kind != KindDictionary && record.Kind != KindObject {
			continue
		}
		if len(ops) == batchObjects || size+len(record.Value) > batchBytes {
			if err := flush(); err != nil {
				return header, Trailer{}, err
			}
		}
		ops = append(ops, clientv3.OpPut(header.Prefix+record.Key, string(record.Value)))
		size += len(record.Value)
	}
	if err := flush(); err != nil {
		return header, Trailer{}, err
	}
	if err := raise(ctx, header.Prefix, header.ResourceVersion+RevisionGap); err != nil {
		return header, Trailer{}, fmt.Errorf("raise the resource versions: %w", err)
	}
	if _, err := etcd.Delete(ctx, note); err != nil {
		return header, Trailer{}, fmt.Errorf("note that everything is restored: %w", err)
	}
	return header, reader.Trailer(), nil
}

// beginCopy leaves the note, if there is nothing yet or only a part of this backup.
func beginCopy(ctx context.Context, etcd clientv3.KV, prefix, note, id string) error {
	found, err := etcd.Get(ctx, note)
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	if len(found.Kvs) > 0 {
		if string(found.Kvs[0].Value) != id {
			return fmt.Errorf("%s: %w: a part of another backup", prefix, ErrNotEmpty)
		}
		return nil
	}
	there, err := etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	if there.Count > 0 {
		return fmt.Errorf("%s: %w: %d of them", prefix, ErrNotEmpty, there.Count)
	}
	answer, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(note), "=", 0)).Then(clientv3.OpPut(note, id)).Commit()
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	if !answer.Succeeded {
		return fmt.Errorf("%w: another restore began", ErrNotEmpty)
	}
	return nil
}

// Unfinished says which backup was not copied to its end, or nothing.
func Unfinished(ctx context.Context, etcd clientv3.KV, prefix string) (string, error) {
	found, err := etcd.Get(ctx, keys.Restore(prefix))
	if err != nil {
		return "", fmt.Errorf("look for an unfinished restore: %w", err)
	}
	if len(found.Kvs) == 0 {
		return "", nil
	}
	return string(found.Kvs[0].Value), nil
}
