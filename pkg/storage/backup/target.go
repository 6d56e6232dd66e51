// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// RevisionGap is how far above what a backup saw the resource versions of what is
// restored are: more than a resource could be written to between the backup and its
// loss, so that no client has seen a higher one.
const RevisionGap = 1_000_000_000

// etcd takes 128 operations in a transaction, and by default 1.5 MiB in a request.
// batchPlain bounds the memory of a batch, whose values may be much smaller in etcd.
const (
	batchObjects = 100
	batchBytes   = 1 << 20
	batchPlain   = 16 << 20
)

// Target is the etcd of a Store, to restore a resource to that nobody serves.
type Target struct {
	// KV sees etcd's own revisions.
	KV clientv3.KV
	// Prefix is that of the Store's keys.
	Prefix string
	// Decoder returns what reads values of a resource as they are in a backup, with
	// the backup's dictionaries by their keys.
	Decoder func(resource schema.GroupResource, dictionaries map[string][]byte, prefix string) (value.Transformer, error)
	// Encoder returns what writes values of a resource to the Store.
	Encoder func(resource schema.GroupResource) (value.Transformer, error)
	// Encryption is what dictionaries are encrypted with. Nil leaves them behind.
	Encryption func(resource schema.GroupResource) value.Transformer
	// Raise has the resource versions of a resource be above floor from now on.
	Raise func(ctx context.Context, resource schema.GroupResource, floor int64) error
}

// Result says what became of a part.
type Result struct {
	// Objects is how many objects the part has.
	Objects int64 `json:"objects"`
	// Found is how many of them were in the Store already, equal.
	Found int64 `json:"found"`
	// Present is how many objects of the resource the Store has now, those of other
	// parts among them.
	Present int64 `json:"present"`
	// Unreadable are the keys of objects that were left out, below the prefix.
	Unreadable []string `json:"unreadable,omitempty"`
}

// ErrConflict marks an object that the Store has another one in place of.
var ErrConflict = errors.New("the Store has another object in its place")

// WriteError is of objects that etcd did not take.
type WriteError struct {
	// Key is that of the first, Bytes the size of them all, as they are stored.
	Key   string
	Bytes int
	Err   error
}

// Error implements error.
func (e *WriteError) Error() string {
	return fmt.Sprintf("write %s, %d bytes as it is stored: %v", e.Key, e.Bytes, e.Err)
}

// Unwrap returns what etcd says.
func (e *WriteError) Unwrap() error { return e.Err }

// Options are those of a restore.
type Options struct {
	// Check has nothing written, only made sure that it could be.
	Check bool
	// SkipUnreadable has values that cannot be read left out.
	SkipUnreadable bool
}

// Restore writes the objects of a part, which all belong to one resource, or checks
// whether they could be written. Either way every value is decoded before the first
// is written. What the Store has already is left alone if it is equal, so that a part
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

// prepare writes what has to be there before the first object.
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
	size    int // of what is encoded
	plain   int // of the objects
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

// flush writes what was collected if none of it is there, and else one by one what
// is not.
func (b *batch) flush(ctx context.Context) error {
	if len(b.objects) == 0 {
		return nil
	}
	all := make([]int, len(b.objects))
	for i := range all {
		all[i] = i
	}
	there, err := b.put(ctx, all)
	if err != nil {
		return err
	}
	var absent []int
	for i := range all {
		if found, ok := there[i]; !ok {
			absent = append(absent, i)
		} else if err := b.compare(ctx, b.objects[i], found); err != nil {
			return err
		}
	}
	if there != nil && len(absent) > 0 {
		if again, err := b.put(ctx, absent); err != nil {
			return err
		} else if again != nil {
			return fmt.Errorf("objects of the resource are being written by somebody else: %w", ErrConflict)
		}
	}
	clear(b.objects)
	clear(b.encoded)
	b.objects, b.encoded, b.size, b.plain = b.objects[:0], b.encoded[:0], 0, 0
	return nil
}

// put writes objects if none of them is there, or returns those that are.
func (b *batch) put(ctx context.Context, which []int) (there map[int][]byte, err error) {
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
	answer, err := b.target.KV.Txn(ctx).If(absent...).Then(puts...).Else(gets...).Commit()
	if err != nil {
		return nil, &WriteError{Key: b.objects[which[0]].key, Bytes: b.size, Err: err}
	}
	if answer.Succeeded {
		return nil, nil
	}
	there = map[int][]byte{}
	for n, i := range which {
		if kvs := answer.Responses[n].GetResponseRange().Kvs; len(kvs) > 0 {
			there[i] = kvs[0].Value
		}
	}
	return there, nil
}

// try has etcd take a large object without writing it: only etcd knows how large a
// request may be, and it looks at that before it looks at the condition.
func (b *batch) try(ctx context.Context, i int) error {
	key := b.key(b.objects[i])
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	if _, err := b.target.KV.Txn(ctx).If(never).Then(clientv3.OpPut(key, b.encoded[i])).Commit(); err != nil {
		return &WriteError{Key: b.objects[i].key, Bytes: len(b.encoded[i]), Err: err}
	}
	return nil
}

// compare makes sure that what is there is what would be written.
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
