// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import clientv3 "go.etcd.io/etcd/client/v3"

// SizeFunc returns the size of a stored value without compression, or false if it is
// unknown; the stored size counts then. Calls with the same value return the same size,
// which may become unknown.
type SizeFunc func(value []byte) (plain int64, known bool)

// sizer computes the usage of values. Only Run's goroutine uses it.
type sizer struct {
	root      string
	plainSize SizeFunc
	// unknown has the keys whose stored size was counted, so that the same size is
	// subtracted when the value is replaced or deleted.
	unknown map[string]struct{}
	buffer  []Usage // reused
}

// reset is called before all values are read again.
func (s *sizer) reset() { s.unknown = map[string]struct{}{} }

// put returns the usage of a new value.
func (s *sizer) put(key, value []byte) Usage {
	stored := int64(len(value))
	usage := Usage{Objects: 1, Bytes: stored, PlainBytes: stored}
	if s.plainSize == nil {
		return usage
	}
	plain, known := s.plainSize(value)
	if !known {
		s.unknown[string(key)] = struct{}{}
		return usage
	}
	delete(s.unknown, string(key))
	usage.PlainBytes = plain
	return usage
}

// remove returns the negative usage that was counted for a replaced or deleted value.
func (s *sizer) remove(key, value []byte) (Usage, error) {
	stored := int64(len(value))
	usage := Usage{Objects: -1, Bytes: -stored, PlainBytes: -stored}
	if s.plainSize == nil {
		return usage, nil
	}
	if _, unknown := s.unknown[string(key)]; unknown {
		delete(s.unknown, string(key))
		return usage, nil
	}
	plain, known := s.plainSize(value)
	if !known {
		return Usage{}, errUnknownSize
	}
	usage.PlainBytes = -plain
	return usage, nil
}

// deltas returns the change of each event. The result is valid until the next call.
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
	// The old value first: both have the same key.
	if event.PrevKv != nil {
		removed, err := s.remove(event.Kv.Key, event.PrevKv.Value)
		if err != nil {
			return Usage{}, err
		}
		delta.add(removed)
	} else if !event.IsCreate() {
		// etcd omits it if it was compacted before the event is delivered.
		return Usage{}, errNoPrevious
	}
	if event.Type == clientv3.EventTypePut {
		delta.add(s.put(event.Kv.Key, event.Kv.Value))
	}
	return delta, nil
}
