// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SizeFunc tells how large a value is without compression, from the value as etcd
// keeps it. It returns false when it cannot know: the value is then taken to be
// of the size it is kept in. For one value the answer must always be the same,
// except that it may become unknown, as with an encryption key that is gone.
type SizeFunc func(resource schema.GroupResource, key, value []byte) (plain int64, known bool)

// sizer weighs values. Only Run's goroutine uses it.
type sizer struct {
	root      string
	plainSize SizeFunc
	// unknown holds the keys whose values were counted as kept, so that just
	// that is taken back when such a value goes. There are hardly ever any.
	unknown map[string]struct{}
	buffer  []Usage // reused
}

// reset forgets the values counted before, as when all are read again.
func (s *sizer) reset() { s.unknown = map[string]struct{}{} }

// put is the usage of a value that is there now.
func (s *sizer) put(key, value []byte) Usage {
	stored := int64(len(value))
	weighed := Usage{Objects: 1, Bytes: stored, PlainBytes: stored}
	if s.plainSize == nil {
		return weighed
	}
	plain, known := s.plainSize(s.resource(key), key, value)
	if !known {
		s.unknown[string(key)] = struct{}{}
		return weighed
	}
	delete(s.unknown, string(key))
	weighed.PlainBytes = plain
	return weighed
}

// take is what a value that went had been counted as.
func (s *sizer) take(key, value []byte) (Usage, error) {
	stored := int64(len(value))
	weighed := Usage{Objects: -1, Bytes: -stored, PlainBytes: -stored}
	if s.plainSize == nil {
		return weighed, nil
	}
	if _, unknown := s.unknown[string(key)]; unknown {
		delete(s.unknown, string(key))
		return weighed, nil
	}
	plain, known := s.plainSize(s.resource(key), key, value)
	if !known {
		return Usage{}, errUnknownSize
	}
	weighed.PlainBytes = -plain
	return weighed, nil
}

// deltas returns what each event changes. What it returns is valid until the next
// call.
func (s *sizer) deltas(events []*clientv3.Event) ([]Usage, error) {
	s.buffer = s.buffer[:0]
	for _, event := range events {
		var delta Usage
		if isObject(s.root, event.Kv.Key) {
			var err error
			if delta, err = s.delta(event); err != nil {
				return nil, err
			}
		}
		s.buffer = append(s.buffer, delta)
	}
	return s.buffer, nil
}

func (s *sizer) delta(event *clientv3.Event) (Usage, error) {
	var delta Usage
	// The value that went first: both have the same key.
	if event.PrevKv != nil {
		taken, err := s.take(event.Kv.Key, event.PrevKv.Value)
		if err != nil {
			return Usage{}, err
		}
		delta.add(taken)
	} else if !event.IsCreate() {
		// etcd leaves it out when it is compacted before the event is delivered.
		return Usage{}, errNoPrevious
	}
	if event.Type == clientv3.EventTypePut {
		delta.add(s.put(event.Kv.Key, event.Kv.Value))
	}
	return delta, nil
}

func (s *sizer) resource(key []byte) schema.GroupResource {
	prefix, groupLength := resourcePrefix(key[len(s.root):])
	return toResource(string(prefix), groupLength)
}
