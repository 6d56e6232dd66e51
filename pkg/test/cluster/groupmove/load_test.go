// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	writers = 4
	// objectsPerWriter are updated, deleted and created again by one writer.
	objectsPerWriter = 6
	// writePause leaves time to the tests beside it.
	writePause = 400 * time.Millisecond
	// storeWriters write the HostedResource of the group, on which its route depends, and conflict with annex's controllers.
	storeWriters = 2
	// storePause is between two writes of a Store writer. In each, another client puts otherKeys into the Store's
	// etcd, whose revision so goes on by 6 a second while the group is frozen there. Each of them is a write more for the
	// rollbacks of all groups of this annex.
	storePause = 500 * time.Millisecond
	otherKeys  = 3
	// someWork is the number of increments that the writers make between two Migrations.
	someWork = 8
)

// startLoad starts clients that write, read and watch until finish. Nothing fails meanwhile, so that none of their
// requests may.
func (f *fixture) startLoad() *history {
	f.Helper()
	etcd, h := f.embeddedEtcd(), newHistory(f.T, writePause)
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
				_ = f.patchStore(ctx, f.own, "widgets."+f.group, i, n) // annex may not have it now
				time.Sleep(storePause)
			}
		})
	}
	h.start(func(ctx context.Context) {
		for ctx.Err() == nil {
			for i := range otherKeys {
				_, err := etcd.Put(context.WithoutCancel(ctx), fmt.Sprintf("/load/%s/%d", f.group, i), "")
				expect.Succeeds(h, err)
			}
			time.Sleep(storePause)
		}
	})
	return h
}

// embeddedEtcd returns a client of the etcd inside the shared annex.
func (f *fixture) embeddedEtcd() *clientv3.Client {
	f.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(f.annex.DataDir, "etcd", "client.sock")}})
	expect.NoError(f, err)
	f.Cleanup(func() { expect.Succeeds(f, client.Close()) })
	return client
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
