// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Limits of a part, so that it does not exceed the timeouts of servers and proxies.
const (
	partBytes = 16 << 20
	partTime  = 10 * time.Second
)

// ErrCompacted means that the revision of a backup was compacted.
var ErrCompacted = errors.New("the revision of the backup was compacted: reading it took longer than etcd keeps the history")

// ErrPosition means that no part of a backup begins at the position.
var ErrPosition = errors.New("a backup cannot continue")

// ErrReplaced means that the data of the Store was replaced between two parts.
var ErrReplaced = errors.New("the data of the Store was replaced since the backup started: start again")

// Source reads backups from the etcd of a Store.
type Source struct {
	// Store is its name.
	Store string
	// KV returns etcd's own revisions, not the resource versions of clients.
	KV clientv3.KV
	// Prefix begins the Store's keys.
	Prefix string
	// Offset returns the difference of clients' resource versions to etcd's revisions for a
	// resource, or the maximum of all. It may be nil.
	Offset func(ctx context.Context, resource *schema.GroupResource) (int64, error)
	// Decoder decodes values of a resource, to mark the unreadable ones.
	Decoder func(resource schema.GroupResource) value.Transformer
	// CreatedBy is the version of annex.
	CreatedBy string
	Now       func() time.Time
}

// Position is the beginning of a part of a backup.
type Position struct {
	// Resource is nil for the whole Store.
	Resource *schema.GroupResource
	// Revision is the revision of the first part, or 0 for the first part itself.
	Revision int64
	// After is Continue of the previous part.
	After string
	// Data is Header.Data of the first part.
	Data string
}

// Part writes a part of a backup, and reports whether it is the last. All parts have the same revision. If reading etcd
// fails at the start, nothing is written to out.
func (s *Source) Part(ctx context.Context, out io.Writer, at Position) (last bool, err error) {
	ranges, err := s.ranges(at)
	if err != nil {
		return false, err
	}
	p := &part{source: s, out: out, at: at, deadline: s.Now().Add(partTime), decoders: map[schema.GroupResource]value.Transformer{}}
	for _, r := range ranges {
		if err := p.read(ctx, r); err != nil {
			return false, err
		}
		if p.full {
			break
		}
	}
	next := ""
	if p.full {
		next = p.last
	}
	_, err = p.writer.closeAt(next)
	return err == nil && next == "", err
}

// span is a range of keys of one kind.
type span struct {
	kind     Kind
	key, end string
}

// ranges returns the keys to read from a position on, in the order of the format. Of annex's
// own keys only the dictionaries are backed up: the others describe the etcd.
func (s *Source) ranges(at Position) ([]span, error) {
	var all []span
	if at.Resource != nil {
		dictionaries, objects := keys.Dictionaries(s.Prefix, *at.Resource), keys.Objects(s.Prefix, *at.Resource)
		all = []span{
			{KindDictionary, dictionaries, clientv3.GetPrefixRangeEnd(dictionaries)},
			{KindObject, objects, clientv3.GetPrefixRangeEnd(objects)},
		}
	} else {
		dictionaries := keys.AllDictionaries(s.Prefix)
		before, after := keys.Beside(s.Prefix)
		all = []span{
			{KindDictionary, dictionaries, clientv3.GetPrefixRangeEnd(dictionaries)},
			{KindObject, before[0], before[1]},
			{KindObject, after[0], after[1]},
		}
	}
	if at.After == "" {
		return all, nil
	}
	key := keys.Root(s.Prefix) + at.After
	for i, r := range all {
		if r.key <= key && key < r.end {
			all[i].key = key + "\x00"
			return all[i:], nil
		}
	}
	return nil, fmt.Errorf("%w after %q", ErrPosition, at.After)
}

// part is a part that is being written.
type part struct {
	source   *Source
	out      io.Writer
	at       Position
	deadline time.Time
	writer   *Writer // nil until the first page was read
	size     int
	last     string
	full     bool
	decoders map[schema.GroupResource]value.Transformer
}

func (p *part) read(ctx context.Context, r span) error {
	for page, err := range etcdkv.Pages(ctx, p.source.KV, r.key, r.end, clientv3.WithRev(p.at.Revision)) {
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			return ErrCompacted
		case errors.Is(err, rpctypes.ErrFutureRev):
			return ErrReplaced
		case err != nil:
			return fmt.Errorf("read the keys below %s: %w", r.key, err)
		}
		if err := p.begin(ctx, page.Header.GetRevision()); err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			p.size += len(kv.Key) + len(kv.Value)
			p.last = strings.TrimPrefix(string(kv.Key), keys.Root(p.source.Prefix))
			// Objects with a lease, such as events, would expire or never be deleted.
			if kv.Lease != 0 {
				continue
			}
			record := Record{Kind: r.kind, Key: p.last, Value: kv.Value}
			if record.Unreadable, err = p.isUnreadable(ctx, record); err != nil {
				return err
			}
			if err := p.writer.Write(record); err != nil {
				return fmt.Errorf("write the backup: %w", err)
			}
		}
		if page.More && (p.size >= partBytes || p.source.Now().After(p.deadline)) {
			p.full = true
			return nil
		}
	}
	return nil
}

// isUnreadable reports whether a custom resource cannot be read, so that users learn of it
// while they may have an older backup.
func (p *part) isUnreadable(ctx context.Context, record Record) (bool, error) {
	resource, _, found := ResourceOf(record.Key)
	if record.Kind != KindObject || !found {
		return false, nil
	}
	decoder := p.decoders[resource]
	if decoder == nil {
		decoder = p.source.Decoder(resource)
		p.decoders[resource] = decoder
	}
	_, err := decode(ctx, decoder, keys.Root(p.source.Prefix), record)
	return err != nil, ctx.Err()
}

// begin writes the header before the first page.
func (p *part) begin(ctx context.Context, current int64) error {
	if p.writer != nil {
		return nil
	}
	if p.at.Revision == 0 {
		p.at.Revision = current
	}
	s := p.source
	data, err := s.data(ctx)
	if err != nil {
		return err
	}
	if p.at.After != "" && p.at.Data != data {
		return ErrReplaced
	}
	header := Header{
		Store: s.Store, Data: data, Prefix: keys.Root(s.Prefix), Revision: p.at.Revision, ResourceVersion: p.at.Revision,
		Created: s.Now().UTC().Truncate(time.Second), CreatedBy: s.CreatedBy,
	}
	if p.at.Resource != nil {
		header.Resource = p.at.Resource.String()
	}
	if s.Offset != nil {
		offset, err := s.Offset(ctx, p.at.Resource)
		if err != nil {
			return err
		}
		header.ResourceVersion += offset
	}
	if p.at.After == "" {
		if header.Expected, err = p.count(ctx); err != nil {
			return err
		}
	}
	p.writer, err = NewWriter(p.out, header)
	return err
}

// data returns Header.Data.
func (s *Source) data(ctx context.Context) (string, error) {
	found, err := s.KV.Get(ctx, keys.Store(s.Prefix))
	if err != nil {
		return "", fmt.Errorf("read the ownership key of the Store: %w", err)
	}
	var ownership struct{ UID, Epoch string }
	for _, kv := range found.Kvs {
		if err := json.Unmarshal(kv.Value, &ownership); err != nil {
			return "", fmt.Errorf("read the ownership key of the Store: %w", err)
		}
	}
	return fmt.Sprintf("%x/%s/%s", found.Header.GetClusterId(), ownership.UID, ownership.Epoch), nil
}

func (p *part) count(ctx context.Context) (int64, error) {
	ranges, err := p.source.ranges(Position{Resource: p.at.Resource})
	if err != nil {
		return 0, err
	}
	var count int64
	for _, r := range ranges {
		if r.kind != KindObject {
			continue
		}
		page, err := p.source.KV.Get(ctx, r.key, clientv3.WithRange(r.end), clientv3.WithRev(p.at.Revision), clientv3.WithCountOnly())
		if err != nil {
			return 0, fmt.Errorf("count the keys below %s: %w", r.key, err)
		}
		count += page.Count
	}
	return count, nil
}
