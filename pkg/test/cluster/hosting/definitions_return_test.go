// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// returns are the times from the late object to the first write, one for each group.
var returns = []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}

// TestWrittenDuringReturn: clients write while groups return to the main cluster and labels
// change. Afterwards every acknowledged object is served, by whichever side has the group.
func TestWrittenDuringReturn(t *testing.T) {
	annex := startAnnex(t)
	for i, delay := range returns {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			writtenDuringReturn(newFixture(t, annex, fmt.Sprintf("returned%d.example.com", i)), delay)
		})
	}
}

func writtenDuringReturn(f *fixture, delay time.Duration) {
	name := "widgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.waitForSync(name)
	// Kubernetes delays the first create after a new CRD by two seconds.
	_, err := f.objects(f.mainObjects, "widgets", "v1").Create(f.Context(), f.newObject("widgets", "v1", "dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	expect.NoError(f, err)

	ctx, stop := context.WithCancel(f.Context())
	defer stop()
	var writers sync.WaitGroup
	acknowledged := make([][]string, 3)
	f.putInMainEtcd("widgets", "v1", "late")
	time.Sleep(delay)
	for i := range acknowledged {
		writers.Go(func() {
			for object := 0; ctx.Err() == nil; object++ {
				name := fmt.Sprintf("w%d-%d", i, object)
				if _, err := f.objects(f.mainObjects, "widgets", "v1").Create(ctx, f.newObject("widgets", "v1", name), metav1.CreateOptions{}); err == nil {
					acknowledged[i] = append(acknowledged[i], name)
				}
			}
		})
	}
	f.patchInMain(name, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	f.patchInMain(name, `{"metadata":{"labels":{"annex.dev/hosted":"true"}}}`)
	f.waitForLateObject(name)
	poll.UntilDone(f, "objects are created", func() (bool, string) {
		list, err := f.objects(f.mainObjects, "widgets", "v1").List(f.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) > 10, fmt.Sprint(err)
	})
	stop()
	writers.Wait()

	list, err := f.objects(f.mainObjects, "widgets", "v1").List(f.Context(), metav1.ListOptions{})
	expect.NoError(f, err)
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
				f.Errorf("%s serves the group, without the acknowledged object %s", route, name)
			}
		}
	}
	f.Logf("%s serves the group, %d objects were created", route, count)
}

// waitForLateObject waits until annex has found the late object. It skips the test on a
// machine so slow that annex had stopped watching for such objects.
func (f *fixture) waitForLateObject(name string) {
	f.Helper()
	deadline := time.Now().Add(20 * time.Second)
	expect.Eventually(f, f.hostedResources, name, "annex finds the late object", func(resource *hostingv1alpha1.HostedResource) bool {
		condition := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
		if condition != nil && condition.Reason == "Synced" && time.Now().After(deadline) {
			f.Skip("annex had stopped watching for late objects")
		}
		return condition != nil && condition.Reason == "ObjectsAppeared"
	})
}
