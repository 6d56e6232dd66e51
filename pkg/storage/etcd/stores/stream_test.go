// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// streaming counts the goroutines that send parts of lists.
func streaming() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "/client/v3.(*kv).GetStream.func1(") + strings.Count(string(stacks), "stores.(*kv).GetStream.func1(")
}

// TestAbandonedStream ends the contexts of lists before their parts are received.
func TestAbandonedStream(t *testing.T) {
	store, err := openPool(t, nil).Get(hostingv1alpha1.DefaultStoreName)
	expect.NoError(t, err)
	for i := range 40 {
		_, err = store.Client().Put(t.Context(), fmt.Sprintf("/annex/objects/%d", i), strings.Repeat("x", 500<<10))
		expect.NoError(t, err)
	}
	const lists = 100
	for range lists {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := store.Client().GetStream(ctx, "/annex/objects/", clientv3.WithPrefix())
		expect.NoError(t, err)
		<-stream
		cancel()
	}
	poll.Until(t, "the goroutines of lists end", func() string {
		if left := streaming(); left > 0 {
			return fmt.Sprintf("%d goroutines of %d lists are left", left, lists)
		}
		return ""
	})
}
