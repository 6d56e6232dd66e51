// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// RevisionGap is added to the resource version of a backup when it is restored. It exceeds
// the number of writes between the backup and the loss, so that no client has seen a higher
// resource version.
const RevisionGap = 1_000_000_000

// By default etcd accepts 128 operations per transaction and 1.5 MiB per request.
// batchPlain bounds the memory of a batch, whose values may be compressed in etcd.
const (
	batchObjects = 100
	batchBytes   = 1 << 20
	batchPlain   = 16 << 20
)

// Target restores resources, which must not be served, to the etcd of a Store.
type Target struct {
	// KV returns etcd's own revisions.
	KV clientv3.KV
	// Prefix begins the Store's keys.
	Prefix string
	// Decoder decodes values of a backup, with the backup's dictionaries by key.
	Decoder func(resource schema.GroupResource, dictionaries map[string][]byte, prefix string) (value.Transformer, error)
	// Encoder encodes values for the Store.
	Encoder func(resource schema.GroupResource) (value.Transformer, error)
	// Encryption encrypts dictionaries. If it is nil, they are not restored.
	Encryption func(resource schema.GroupResource) value.Transformer
	// Raise makes the resource versions of a resource higher than floor.
	Raise func(ctx context.Context, resource schema.GroupResource, floor int64) error
}

// Result counts the objects of a restored part.
type Result struct {
	// Objects is the number of objects in the part.
	Objects int64 `json:"objects"`
	// Found is the number of objects that were equal in the Store already.
	Found int64 `json:"found"`
	// Present is the number of objects of the resource in the Store now.
	Present int64 `json:"present"`
	// Unreadable are the keys of omitted objects, below the prefix.
	Unreadable []string `json:"unreadable,omitempty"`
}

// ErrConflict means that the Store has a different object of the same name.
var ErrConflict = errors.New("the Store has another object in its place")

// WriteError is the error of objects that etcd rejected.
type WriteError struct {
	// Key is the key of the first, and Bytes the stored size of all.
	Key   string
	Bytes int
	Err   error
}

// Error implements error.
func (e *WriteError) Error() string {
	return fmt.Sprintf("write %s, %d bytes as it is stored: %v", e.Key, e.Bytes, e.Err)
}

// Unwrap returns the error of etcd.
func (e *WriteError) Unwrap() error { return e.Err }

// Options configure a restore.
type Options struct {
	// Check checks whether the part could be restored, and writes nothing.
	Check bool
	// SkipUnreadable omits unreadable values.
	SkipUnreadable bool
}

// Restore writes the objects of a part, which must belong to one resource. Every value is
// decoded before the first is written. Equal objects in the Store are kept, so that a part
// may be sent again.
func (t *Target) Restore(ctx context.Context, resource schema.GroupResource, in io.Reader, options Options) (Result, error) {
	p, err := t.decode(ctx, resource, in, options.SkipUnreadable)
	if err != nil {
		return Result{}, err
	}
	result := Result{Objects: int64(len(p.objects)), Unreadable: p.unreadable}
	if !options.Check {
		if err := t.prepare(ctx, resource, p); err != nil {
			return result, err
		}
	}
	encoder, err := t.Encoder(resource)
	if err != nil {
		return result, fmt.Errorf("%s: %w", resource, err)
	}
	w := &batch{target: t, encoder: encoder, check: options.Check}
	for _, record := range p.objects {
		plain, err := decode(ctx, p.decoder, p.header.Prefix, record)
		if err != nil {
			return result, err
		}
		if err := w.add(ctx, object{record.Key, plain}); err != nil {
			return result, err
		}
	}
	if err := w.flush(ctx); err != nil {
		return result, err
	}
	result.Found = w.found
	count, err := t.KV.Get(ctx, keys.Objects(t.Prefix, resource), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return result, fmt.Errorf("count the objects of %s: %w", resource, err)
	}
	result.Present = count.Count
	return result, nil
}

// prepare raises the resource versions and writes dictionaries, before the first object.
func (t *Target) prepare(ctx context.Context, resource schema.GroupResource, p *decoded) error {
	if err := t.Raise(ctx, resource, p.header.ResourceVersion+RevisionGap); err != nil {
		return fmt.Errorf("raise the resource versions of %s: %w", resource, err)
	}
	return t.copyDictionaries(ctx, resource, p.dictionaries)
}

// batch collects objects for one transaction.
type batch struct {
	target  *Target
	encoder value.Transformer
	check   bool
	objects []object
	encoded []string
	size    int // of encoded
	plain   int // size of objects
	found   int64
}

func (b *batch) key(o object) string { return keys.Root(b.target.Prefix) + o.key }

func (b *batch) add(ctx context.Context, o object) error {
	key := b.key(o)
	encoded, err := b.encoder.TransformToStorage(ctx, o.value, value.DefaultContext(key))
	if err != nil {
		return fmt.Errorf("encode %s: %w", o.key, err)
	}
	full := b.size+len(encoded) > batchBytes || b.plain+len(o.value) > batchPlain
	if len(b.objects) == batchObjects || len(b.objects) > 0 && full {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.objects, b.encoded = append(b.objects, o), append(b.encoded, string(encoded))
	b.size, b.plain = b.size+len(encoded), b.plain+len(o.value)
	return nil
}

// flush writes the objects that do not exist, and compares those that do.
func (b *batch) flush(ctx context.Context) error {
	if len(b.objects) == 0 {
		return nil
	}
	all := make([]int, len(b.objects))
	for i := range all {
		all[i] = i
	}
	existing, err := b.put(ctx, all)
	if err != nil {
		return err
	}
	var absent []int
	for i := range all {
		if found, ok := existing[i]; !ok {
			absent = append(absent, i)
		} else if err := b.compare(ctx, b.objects[i], found); err != nil {
			return err
		}
	}
	if existing != nil && len(absent) > 0 {
		if again, err := b.put(ctx, absent); err != nil {
			return err
		} else if again != nil {
			return fmt.Errorf("objects of the resource are being written concurrently: %w", ErrConflict)
		}
	}
	clear(b.objects)
	clear(b.encoded)
	b.objects, b.encoded, b.size, b.plain = b.objects[:0], b.encoded[:0], 0, 0
	return nil
}

// put writes objects if none of them exists. Otherwise it returns those that do.
func (b *batch) put(ctx context.Context, which []int) (existing map[int][]byte, err error) {
	var absent []clientv3.Cmp
	var puts, gets []clientv3.Op
	for _, i := range which {
		key := b.key(b.objects[i])
		absent = append(absent, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		gets = append(gets, clientv3.OpGet(key))
		if !b.check {
			puts = append(puts, clientv3.OpPut(key, b.encoded[i]))
		}
	}
	if b.check && b.size > batchBytes {
		if err := b.try(ctx, which[0]); err != nil {
			return nil, err
		}
	}
	response, err := b.target.KV.Txn(ctx).If(absent...).Then(puts...).Else(gets...).Commit()
	if err != nil {
		return nil, &WriteError{Key: b.objects[which[0]].key, Bytes: b.size, Err: err}
	}
	if response.Succeeded {
		return nil, nil
	}
	existing = map[int][]byte{}
	for n, i := range which {
		if kvs := response.Responses[n].GetResponseRange().Kvs; len(kvs) > 0 {
			existing[i] = kvs[0].Value
		}
	}
	return existing, nil
}

// try sends a large object with a condition that is false. etcd checks the size of requests
// before it evaluates conditions.
func (b *batch) try(ctx context.Context, i int) error {
	key := b.key(b.objects[i])
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	if _, err := b.target.KV.Txn(ctx).If(never).Then(clientv3.OpPut(key, b.encoded[i])).Commit(); err != nil {
		return &WriteError{Key: b.objects[i].key, Bytes: len(b.encoded[i]), Err: err}
	}
	return nil
}

// compare checks that the stored object equals o.
func (b *batch) compare(ctx context.Context, o object, stored []byte) error {
	plain, _, err := b.encoder.TransformFromStorage(ctx, stored, value.DefaultContext(b.key(o)))
	if err != nil {
		return fmt.Errorf("object %s: %w, which %w: %w", o.key, ErrConflict, ErrUnreadable, err)
	}
	if !bytes.Equal(plain, o.value) {
		return fmt.Errorf("object %s: %w", o.key, ErrConflict)
	}
	b.found++
	return nil
}

// copyDictionaries writes the dictionaries of a resource that the Store does not have,
// encrypted for the Store, so that new values are as small as before.
func (t *Target) copyDictionaries(ctx context.Context, resource schema.GroupResource, dictionaries []object) error {
	for _, dictionary := range dictionaries {
		key := keys.Root(t.Prefix) + dictionary.key
		encrypted, err := t.Encryption(resource).TransformToStorage(ctx, dictionary.value, value.DefaultContext(key))
		if err != nil {
			return fmt.Errorf("encrypt dictionary %s: %w", dictionary.key, err)
		}
		_, err = t.KV.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, string(encrypted))).Commit()
		if err != nil {
			return fmt.Errorf("write dictionary %s: %w", dictionary.key, err)
		}
	}
	return nil
}

// CopyDictionaries copies the dictionaries of a resource from the etcd of another Store.
func (t *Target) CopyDictionaries(ctx context.Context, resource schema.GroupResource, from clientv3.KV, prefix string) error {
	found, err := from.Get(ctx, keys.Dictionaries(prefix, resource), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the dictionaries of %s: %w", resource, err)
	}
	var dictionaries []object
	for _, kv := range found.Kvs {
		plain, _, err := t.Encryption(resource).TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
		if err != nil {
			return fmt.Errorf("dictionary %s %w: %w", kv.Key, ErrUnreadable, err)
		}
		dictionaries = append(dictionaries, object{strings.TrimPrefix(string(kv.Key), keys.Root(prefix)), plain})
	}
	return t.copyDictionaries(ctx, resource, dictionaries)
}
