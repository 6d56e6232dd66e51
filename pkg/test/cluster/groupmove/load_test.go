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

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	writers = 4
	// objectsPerWriter are updated, deleted and created again by one writer.
	objectsPerWriter = 6
	// writePause leaves time to the tests beside it.
	writePause = 50 * time.Millisecond
	// storeWriters write other objects into annex's Store, whose revision goes on while a group is frozen there. The
	// first two write the HostedResource of the group, on which its route depends, and conflict with annex's controllers.
	storeWriters = 16
	// storePause leaves annex and the tests beside it CPU time: all Store writers together write 150 times a second.
	storePause = 100 * time.Millisecond
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
		name := "widgets." + f.group
		if i > 1 {
			name = f.loadObject(i)
		}
		h.start(func(ctx context.Context) {
			for n := 0; ctx.Err() == nil; n++ {
				_ = f.patchStore(ctx, f.own, name, i, n) // annex may not have it now
				time.Sleep(storePause)
			}
		})
	}
	return h
}

// loadObject creates an object in annex's Store for a writer: with one for all, each write would conflict with fifteen.
func (f *fixture) loadObject(writer int) string {
	f.Helper()
	name := fmt.Sprintf("load-%d.load.%s", writer, f.group)
	hosted := f.own.Hosting.HostingV1alpha1().HostedResources()
	expect.Create(f, hosted, &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}})
	f.Cleanup(func() { expect.NoError(f, hosted.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	return name
}

// patchStore changes a HostedResource of annex.
func (f *fixture) patchStore(ctx context.Context, own *clients.Clients, name string, writer, n int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/writer-%d":"%d"}}}`, writer, n)
	_, err := own.Hosting.HostingV1alpha1().HostedResources().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
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
