// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"strings"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/lru"
)

// maxHeavy is how many large objects of a resource are remembered.
const maxHeavy = 10000

// heavy remembers which objects are large, so that what it takes to change one is
// known before it is read. It may forget one: the next read tells again.
type heavy struct {
	prefix string
	sizes  *lru.Cache // of int, by key without prefix
}

func newHeavy(prefix string) heavy {
	return heavy{prefix: strings.Trim(prefix, "/"), sizes: lru.New(maxHeavy)}
}

// note takes down what was read from or is written to a key.
func (h *heavy) note(dataCtx value.Context, size int) {
	if size < HeavyBytes && h.sizes.Len() == 0 {
		return // as nearly always
	}
	key := strings.TrimPrefix(strings.Trim(string(dataCtx.AuthenticatedData()), "/"), h.prefix+"/")
	if size < HeavyBytes {
		h.sizes.Remove(key)
	} else {
		h.sizes.Add(key, size)
	}
}

// size is 0 for objects that are not large.
func (h *heavy) size(key string) int64 {
	if size, ok := h.sizes.Get(strings.Trim(key, "/")); ok {
		return int64(size.(int))
	}
	return 0
}
