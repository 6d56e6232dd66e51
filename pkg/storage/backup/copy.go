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

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// ErrNotEmpty means that the target prefix has other keys.
var ErrNotEmpty = errors.New("there are other keys already")

// Copy writes a backup to an etcd that no annex uses, unchanged and under the original
// keys: values stay encrypted with their keys. A marker key exists from before the first
// write until after the last, so that no annex serves a partial copy (see Unfinished). An
// interrupted copy of the same backup can be repeated.
//
// raise is called at the end, before the marker is removed; done after each batch.
func Copy(ctx context.Context, etcd clientv3.KV, in io.Reader, raise func(ctx context.Context, prefix string, floor int64) error, done func(Trailer)) (Header, Trailer, error) {
	reader, err := NewReader(in)
	if err != nil {
		return Header{}, Trailer{}, err
	}
	header := reader.Header()
	marker := keys.Restore(header.Prefix)
	id := header.Store + " " + strconv.FormatInt(header.Revision, 10) + " " + header.Created.String()
	if err := beginCopy(ctx, etcd, header.Prefix, marker, id); err != nil {
		return header, Trailer{}, err
	}
	var ops []clientv3.Op
	size := 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		// The comparison prevents two concurrent copies.
		answer, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value(marker), "=", id)).Then(ops...).Commit()
		if err != nil {
			return fmt.Errorf("write to etcd: %w", err)
		}
		if !answer.Succeeded {
			return fmt.Errorf("%w: another restore is running", ErrNotEmpty)
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
	if _, err := etcd.Delete(ctx, marker); err != nil {
		return header, Trailer{}, fmt.Errorf("remove the marker of the restore: %w", err)
	}
	return header, reader.Trailer(), nil
}

// beginCopy writes the marker, if the prefix is empty or has a part of this backup.
func beginCopy(ctx context.Context, etcd clientv3.KV, prefix, marker, id string) error {
	found, err := etcd.Get(ctx, marker)
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	if len(found.Kvs) > 0 {
		if string(found.Kvs[0].Value) != id {
			return fmt.Errorf("%s: %w: a part of another backup", prefix, ErrNotEmpty)
		}
		return nil
	}
	existing, err := etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	if existing.Count > 0 {
		return fmt.Errorf("%s: %w: %d of them", prefix, ErrNotEmpty, existing.Count)
	}
	answer, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(marker), "=", 0)).Then(clientv3.OpPut(marker, id)).Commit()
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	if !answer.Succeeded {
		return fmt.Errorf("%w: another restore is running", ErrNotEmpty)
	}
	return nil
}

// Unfinished returns the ID of a backup that is only partly copied, or "".
func Unfinished(ctx context.Context, etcd clientv3.KV, prefix string) (string, error) {
	found, err := etcd.Get(ctx, keys.Restore(prefix))
	if err != nil {
		return "", fmt.Errorf("check for an unfinished restore: %w", err)
	}
	if len(found.Kvs) == 0 {
		return "", nil
	}
	return string(found.Kvs[0].Value), nil
}
