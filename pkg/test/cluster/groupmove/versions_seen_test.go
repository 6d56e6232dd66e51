// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/clients"
)

// storeWriters write other objects into annex's Store, whose revision goes on while a group is frozen there.
const storeWriters = 16

// recordVersions lets clients read the group until ctx is done, and records a problem if one sees a resource version
// below one that another has seen before the request.
func (l *load) recordVersions(ctx context.Context) {
	var highest atomic.Int64
	see := func(version string) int64 {
		revision, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			l.problem("resource version %q: %v", version, err)
		}
		for seen := highest.Load(); seen < revision && !highest.CompareAndSwap(seen, revision); {
			seen = highest.Load()
		}
		return revision
	}
	l.running.Go(func() {
		client := clients.For(l, mainCluster.Config).Dynamic.Resource(l.resource()).Namespace("default")
		for ctx.Err() == nil {
			floor := highest.Load()
			list, err := client.List(context.WithoutCancel(ctx), metav1.ListOptions{Limit: 1})
			if err != nil {
				l.problem("list: %v", err)
			} else if got := see(list.GetResourceVersion()); got < floor {
				l.problem("a list has resource version %d, a client has seen %d before", got, floor)
			}
		}
	})
	l.running.Go(func() {
		client := clients.For(l, mainCluster.Config).Dynamic.Resource(l.resource()).Namespace("default")
		for from := ""; ctx.Err() == nil; {
			from = l.watchVersions(ctx, client, from, see)
		}
	})
	for i := range storeWriters {
		l.running.Go(func() {
			resources := l.own.Hosting.HostingV1alpha1().HostedResources()
			for n := 0; ctx.Err() == nil; n++ {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/writer-%d":"%d"}}}`, i, n)
				if _, err := resources.Patch(ctx, "widgets."+l.group, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					time.Sleep(writePause) // annex does not have it now
				}
			}
		})
	}
}

// watchVersions watches from a version, and returns the one to go on from.
func (l *load) watchVersions(ctx context.Context, client dynamic.ResourceInterface, from string, see func(string) int64) string {
	if from == "" {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return ""
		}
		from = list.GetResourceVersion()
	}
	events, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return ""
	}
	if err != nil {
		return from
	}
	defer events.Stop()
	last, _ := strconv.ParseInt(from, 10, 64)
	for event := range events.ResultChan() {
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return "" // 410
		}
		got := see(object.GetResourceVersion())
		if got < last {
			l.problem("a watch has resource version %d after %d", got, last)
		}
		last, from = got, object.GetResourceVersion()
	}
	return from
}
