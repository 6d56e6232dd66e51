// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
)

// returns are how long after an object slipped in writers begin, in as many groups.
var returns = []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}

// TestWrittenWhileGivenBack: while groups go back to the main cluster, and their labels
// are removed, clients write. What was acknowledged is seen afterwards, wherever the
// group is.
func TestWrittenWhileGivenBack(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	for i, delay := range returns {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			writtenWhileGivenBack(newFixture(t, annex, fmt.Sprintf("returned%d.example.com", i)), delay)
		})
	}
}

func writtenWhileGivenBack(w *fixture, delay time.Duration) {
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.asksAnnex("widgets", "v1")
	w.followed(name)
	// Kubernetes makes clients of a new definition wait for two seconds.
	_, err := w.in(w.mainObjects, "widgets", "v1").Create(w.Context(), w.object("widgets", "v1", "dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	w.no(err)

	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	var writers sync.WaitGroup
	acknowledged := make([][]string, 3)
	w.slipIn("widgets", "v1", "late")
	time.Sleep(delay)
	for i := range acknowledged {
		writers.Go(func() {
			for object := 0; ctx.Err() == nil; object++ {
				name := fmt.Sprintf("w%d-%d", i, object)
				if _, err := w.in(w.mainObjects, "widgets", "v1").Create(ctx, w.object("widgets", "v1", name), metav1.CreateOptions{}); err == nil {
					acknowledged[i] = append(acknowledged[i], name)
				}
			}
		})
	}
	w.patch(name, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	w.patch(name, `{"metadata":{"labels":{"annex.dev/hosted":"true"}}}`)
	w.seesLateObject(name)
	w.eventually("objects are made", func(ctx context.Context) (bool, string) {
		list, err := w.in(w.mainObjects, "widgets", "v1").List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) > 10, fmt.Sprint(err)
	})
	stop()
	writers.Wait()

	list, err := w.in(w.mainObjects, "widgets", "v1").List(w.Context(), metav1.ListOptions{})
	w.no(err)
	seen := map[string]bool{}
	for _, object := range list.Items {
		seen[object.GetName()] = true
	}
	route := "annex"
	if seen["late"] {
		route = "the main cluster"
	}
	count := 0
	for _, names := range acknowledged {
		for _, name := range names {
			count++
			if !seen[name] {
				w.Errorf("%s answers for the group, and object %s, which was acknowledged, is not there", route, name)
			}
		}
	}
	w.Logf("%s answers for the group, %d objects were made", route, count)
}

// seesLateObject waits until annex has seen the object that slipped in. On a machine that
// is so slow that annex looked for none any more the test says nothing.
func (w *fixture) seesLateObject(name string) {
	w.Helper()
	deadline := time.Now().Add(20 * time.Second)
	w.eventually("annex sees the late object", func(ctx context.Context) (bool, string) {
		resource, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		said := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
		if said != nil && said.Reason == "Synced" && time.Now().After(deadline) {
			w.Skip("annex had stopped looking for late objects")
		}
		return said != nil && said.Reason == "ObjectsAppeared", fmt.Sprintf("%+v", said)
	})
}
