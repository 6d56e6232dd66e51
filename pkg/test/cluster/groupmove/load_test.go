// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	writers = 4
	// objectsPerWriter are updated, deleted and created again by one writer.
	objectsPerWriter = 6
	// writePause leaves time to the tests beside it.
	writePause = 50 * time.Millisecond
	// storeWriters write other objects into annex's Store, whose revision goes on while a group is frozen there.
	storeWriters = 16
	// someWork is the number of increments that the writers make between two Migrations.
	someWork = 20
)

// startLoad starts clients that write, read and watch until finish. Nothing fails meanwhile, so that none of their
// requests may.
func (f *fixture) startLoad() *history {
	f.Helper()
	h := newHistory(f.T, writePause)
	f.Cleanup(h.stop)
	f.create("default", "counter", nil)
	for _, object := range f.list().Items {
		h.uids[object.GetName()] = string(object.GetUID())
	}
	widgets := func() dynamic.ResourceInterface {
		return clients.For(f, f.annex.Cluster.Config).Dynamic.Resource(f.resource()).Namespace("default")
	}
	h.startInformer("informer", f.main.Dynamic, f.resource(), true)
	h.start((&watcher{history: h, name: "watch", widgets: widgets()}).run)
	h.start((&reader{history: h, random: rand.New(rand.NewPCG(1, 100)), widgets: widgets(), pause: writePause}).run)
	for i := range writers {
		c := &client{history: h, name: fmt.Sprintf("w%d", i), random: rand.New(rand.NewPCG(1, uint64(i))), newWidget: f.newWidget, widgets: widgets()}
		h.start(c.run)
	}
	for i := range storeWriters {
		h.start(func(ctx context.Context) {
			for n := 0; ctx.Err() == nil; n++ {
				if f.patchStore(ctx, f.own, i, n) != nil {
					time.Sleep(writePause) // annex does not have it now
				}
			}
		})
	}
	return h
}

// patchStore changes an object of annex that is not in the group.
func (f *fixture) patchStore(ctx context.Context, own *clients.Clients, writer, n int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/writer-%d":"%d"}}}`, writer, n)
	_, err := own.Hosting.HostingV1alpha1().HostedResources().Patch(ctx, "widgets."+f.group, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// work waits until the clients have written more.
func (h *history) work() {
	h.Helper()
	before := h.acknowledged.Load()
	poll.UntilDone(h, "the clients write", func() (bool, string) {
		now := h.acknowledged.Load()
		return now >= before+someWork, fmt.Sprint(now-before, " increments were acknowledged")
	})
}

func (f *fixture) list() *unstructured.UnstructuredList {
	f.Helper()
	var list *unstructured.UnstructuredList
	poll.UntilNoError(f, "list all widgets", func() (err error) {
		list, err = f.widgets().List(f.Context(), metav1.ListOptions{})
		return err
	})
	return list
}

// finish ends the clients, and fails unless everything that was acknowledged is there, no request has failed, and the
// informer has what a list returns.
func (h *history) finish(f *fixture) {
	h.Helper()
	h.stop()
	h.checkObjects(f.list().Items)
	h.checkInformers(f.list)
	h.checkReads()
	h.report()
}
