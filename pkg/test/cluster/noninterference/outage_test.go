// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package noninterference

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// Tests in this file do not run in parallel, because they take annex or its store
// away. Go runs them before those that do.

// promptly is far below the five seconds that the main cluster's probe has, and far
// above what an answer from memory takes even on a busy machine.
const promptly = time.Second

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// TestStoreDown: annex goes on describing itself while its store hangs or is gone, so
// that the main cluster goes on using all of it and of itself.
func TestStoreDown(t *testing.T) {
	s := running(t)
	w := s.newWidgets(t)
	w.create(t, "before")
	mainClients := main(t)
	poll.Until(t, "the main cluster has the group in its discovery", func() string {
		return isDiscovered(t, mainClients, w.group, 1)
	})
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut=%t", cut), func(t *testing.T) {
			undo := s.store.shut()
			defer undo()
			if cut {
				s.store.cut()
			}
			if _, err := w.by(mainClients).Create(shortly(t), w.object("during"), metav1.CreateOptions{}); err == nil {
				t.Fatal("a write was acknowledged although annex has no store")
			}
			s.answersPromptly(t, w)
			if !cut {
				s.isProbedAvailable(t, w)
			}
			if problem := isDiscovered(t, mainClients, w.group, 1); problem != "" {
				t.Error(problem)
			}
			undo()
			poll.Until(t, "annex works again", func() string {
				_, err := w.by(mainClients).Get(shortly(t), "before", metav1.GetOptions{})
				if err != nil {
					return err.Error()
				}
				return ""
			})
		})
	}
}

// shortly is a context for a request that may hang.
func shortly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// answersPromptly asks annex what the main cluster's aggregator asks.
func (s *sharedAnnex) answersPromptly(t *testing.T, w widgets) {
	t.Helper()
	for _, asked := range []struct {
		by   *clients
		path string
	}{
		{s.own(t), "/apis"}, {s.own(t), "/apis/" + w.group + "/v1"}, {s.own(t), "/apis/hosting.annex.dev/v1alpha1"}, {s.own(t), "/openapi/v3"}, {s.own(t), "/openapi/v2"},
		{main(t), "/apis"}, {main(t), "/apis/" + w.group + "/v1"}, {main(t), "/openapi/v3/apis/" + w.group + "/v1"},
	} {
		// The first opens the connection.
		asked.by.get(t, "/livez/ping")
		var took []time.Duration
		for range 5 {
			started := time.Now()
			got := asked.by.get(t, asked.path, "Accept", aggregatedDiscovery+",application/json")
			took = append(took, time.Since(started))
			if got.code != http.StatusOK {
				t.Errorf("%s of %s: %s", asked.path, asked.by.config.Host, got)
			}
		}
		slices.Sort(took)
		t.Logf("%s of %s: %s (median of %d)", asked.path, asked.by.config.Host, took[len(took)/2], len(took))
		if slowest := took[len(took)-1]; slowest > promptly {
			t.Errorf("%s of %s took up to %s, want less than %s", asked.path, asked.by.config.Host, slowest, promptly)
		}
	}
}

// isProbedAvailable has the main cluster look whether annex is there.
func (s *sharedAnnex) isProbedAvailable(t *testing.T, w widgets) {
	t.Helper()
	mainAggregator, err := aggregatorclient.NewForConfig(mainCluster.Config)
	expect.NoError(t, err)
	apiServices := mainAggregator.ApiregistrationV1().APIServices()
	// Any change makes it look at once instead of within 30 seconds.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"looked-at":%q}}}`, time.Now())
	touched, err := apiServices.Patch(t.Context(), "v1."+w.group, types.MergePatchType, patch, metav1.PatchOptions{})
	expect.NoError(t, err)
	// A probe has 5 seconds; being unavailable would be written right afterwards.
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); <-poll.C {
		now, err := apiServices.Get(t.Context(), touched.Name, metav1.GetOptions{})
		expect.NoError(t, err)
		if !apiregistrationhelper.IsAPIServiceConditionTrue(now, apiregistrationv1.Available) {
			t.Fatalf("the main cluster takes annex for unavailable: %+v", now.Status.Conditions)
		}
	}
}

// isDiscovered says what is wrong with a group in the main cluster's discovery.
func isDiscovered(t *testing.T, c *clients, group string, kinds int) string {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	got := c.get(t, "/apis", "Accept", aggregatedDiscovery)
	if err := json.Unmarshal(got.body, &list); err != nil {
		return got.String()
	}
	for _, found := range list.Items {
		if found.Name != group {
			continue
		}
		version := found.Versions[0]
		if version.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && len(version.Resources) == kinds {
			return ""
		}
		return fmt.Sprintf("%s is %s with %d resources", group, version.Freshness, len(version.Resources))
	}
	return group + " is not in discovery"
}

// TestAnnexGone: with annex stopped the rest of the main cluster works, and all is
// well again by itself when annex is back.
func TestAnnexGone(t *testing.T) {
	s := running(t)
	w := s.newWidgets(t)
	kept := w.create(t, "kept")
	mainClients := main(t)
	namespace := newNamespace(t)
	configMaps := mainClients.kube.CoreV1().ConfigMaps(namespace)
	unhurt := mainClients.documents(t)

	expect.NoError(t, s.annex.Shutdown())
	back := false
	defer func() {
		if !back {
			expect.NoError(t, s.launch(), "start annex again")
		}
	}()
	poll.Until(t, "requests for annex's resources are refused", func() string {
		_, err := w.by(mainClients).Get(shortly(t), "kept", metav1.GetOptions{})
		if !apierrors.IsServiceUnavailable(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	owner, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	if _, err := configMaps.Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.NoError(t, configMaps.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	poll.Until(t, "garbage of the main cluster is collected", func() string {
		_, err := configMaps.Get(t.Context(), "dependent", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprint("the dependent: ", err)
		}
		return ""
	})
	during := mainClients.documents(t)
	checkUnhurt(t, s.before, during)
	if len(during.paths) < len(unhurt.paths) {
		t.Errorf("OpenAPI v2 has %d paths, with annex it had %d", len(during.paths), len(unhurt.paths))
	}
	if printed, err := kubectl(t, "", "get", "namespaces"); err != nil {
		t.Errorf("kubectl get namespaces: %v\n%s", err, printed)
	}
	// Upstream finishes no namespace while any group is unknown to it.
	expect.Delete(t, mainClients.kube.CoreV1().Namespaces(), namespace)

	expect.NoError(t, s.launch(), "start annex again")
	back = true
	poll.Until(t, "annex is back behind the main cluster", func() string {
		again, err := w.by(main(t)).Get(shortly(t), "kept", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if again.GetUID() != kept.GetUID() {
			t.Errorf("it came back as another: UID %s, was %s", again.GetUID(), kept.GetUID())
		}
		return ""
	})
	poll.Until(t, "the namespace that was deleted meanwhile goes", func() string {
		left, err := mainClients.kube.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprint(left.Status, err)
		}
		return ""
	})
	poll.Until(t, "discovery of the group is current", func() string { return isDiscovered(t, mainClients, w.group, 1) })
}
