// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"bytes"
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
	"k8s.io/apimachinery/pkg/util/uuid"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// Tests in this file stop annex, its etcd or the main cluster, so they do not run in parallel.

// promptly is below the timeout of five seconds of the main cluster's probe, and far above
// the time of a response from memory even on a busy machine.
const promptly = 4 * time.Second

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// testStoreDown: annex serves discovery and OpenAPI while its etcd hangs or is down, so the main
// cluster stays fully usable.
func testStoreDown(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	w.create(t, "before")
	mainClients := main(t)
	poll.Until(t, "the main cluster discovers the group", func() string {
		return isDiscovered(t, mainClients, w.group, 1)
	})
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut=%t", cut), func(t *testing.T) {
			undo := s.proxy.Freeze()
			defer undo()
			if cut {
				s.proxy.Disconnect()
			}
			if _, err := w.by(mainClients).Create(shortly(t), w.object("during"), metav1.CreateOptions{}); err == nil {
				t.Fatal("a write was acknowledged without etcd")
			}
			s.answersPromptly(t, w)
			if !cut {
				s.staysAvailable(t, w)
			}
			if problem := isDiscovered(t, mainClients, w.group, 1); problem != "" {
				t.Error(problem)
			}
			undo()
			poll.UntilNoError(t, "annex serves objects again", func() error {
				_, err := w.by(mainClients).Get(shortly(t), "before", metav1.GetOptions{})
				return err
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

// answersPromptly sends the requests of the main cluster's aggregator to annex.
func (s *sharedAnnex) answersPromptly(t *testing.T, w widgets) {
	t.Helper()
	for _, asked := range []struct {
		by   *endpoint
		path string
	}{
		{s.own(t), "/apis"}, {s.own(t), "/apis/" + w.group + "/v1"}, {s.own(t), "/apis/hosting.annex.dev/v1alpha1"}, {s.own(t), "/openapi/v3"}, {s.own(t), "/openapi/v2"},
		{main(t), "/apis"}, {main(t), "/apis/" + w.group + "/v1"}, {main(t), "/openapi/v3/apis/" + w.group + "/v1"},
	} {
		// Open the connection.
		asked.by.get(t, "/livez/ping")
		var took []time.Duration
		for range 5 {
			started := time.Now()
			got := asked.by.get(t, asked.path, "Accept", aggregatedDiscovery+",application/json")
			took = append(took, time.Since(started))
			got.Expect(t, http.StatusOK, "%s of %s", asked.path, asked.by.Config.Host)
		}
		slices.Sort(took)
		t.Logf("%s of %s: %s (median of %d)", asked.path, asked.by.Config.Host, took[len(took)/2], len(took))
		if median := took[len(took)/2]; median > promptly {
			t.Errorf("%s of %s took %s, want less than %s", asked.path, asked.by.Config.Host, median, promptly)
		}
	}
}

// staysAvailable makes the main cluster probe annex, and fails if it becomes unavailable.
func (s *sharedAnnex) staysAvailable(t *testing.T, w widgets) {
	t.Helper()
	apiServices := main(t).APIServices
	// Any change triggers a probe at once instead of within 30 seconds.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
	touched := expect.Patch(t, apiServices, "v1."+w.group, string(patch))
	// A probe times out after 5 seconds, and the status is written right afterwards.
	interval := time.NewTicker(200 * time.Millisecond)
	defer interval.Stop()
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); <-interval.C {
		now := expect.Get(t, apiServices, touched.Name)
		if !apiregistrationhelper.IsAPIServiceConditionTrue(now, apiregistrationv1.Available) {
			t.Fatalf("the main cluster reports annex as unavailable: %+v", now.Status.Conditions)
		}
	}
}

// isDiscovered returns what is wrong with a group in the main cluster's discovery.
func isDiscovered(t *testing.T, c *endpoint, group string, kinds int) string {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	got := c.get(t, "/apis", "Accept", aggregatedDiscovery)
	if err := json.Unmarshal(got.Body, &list); err != nil {
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

// testAnnexDown: without annex the rest of the main cluster works, and annex's part recovers
// once annex is back.
func testAnnexDown(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	kept := w.create(t, "kept")
	mainClients := main(t)
	namespace := newNamespace(t)
	configMaps := mainClients.Kube.CoreV1().ConfigMaps(namespace)
	withAnnex := mainClients.documents(t)

	expect.NoError(t, s.annex.Shutdown())
	back := false
	defer func() {
		if !back {
			expect.NoError(t, s.launch(), "start annex again")
		}
	}()
	poll.UntilDone(t, "requests for annex's resources fail", func() (bool, string) {
		_, err := w.by(mainClients).Get(shortly(t), "kept", metav1.GetOptions{})
		return apierrors.IsServiceUnavailable(err), fmt.Sprint(err)
	})
	owner := expect.Create(t, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	expect.Create(t, configMaps, dependent)
	expect.Delete(t, configMaps, "owner")
	expect.Gone(t, configMaps, "dependent")
	during := mainClients.documents(t)
	checkUnchanged(t, s.before, during)
	if len(during.paths) < len(withAnnex.paths) {
		t.Errorf("OpenAPI v2 has %d paths, %d with annex", len(during.paths), len(withAnnex.paths))
	}
	if printed, err := kubectl(t, "", "get", "namespaces"); err != nil {
		t.Errorf("kubectl get namespaces: %v\n%s", err, printed)
	}
	// Kubernetes finishes no namespace deletion while discovery of any group fails.
	expect.Delete(t, mainClients.Kube.CoreV1().Namespaces(), namespace)

	expect.NoError(t, s.launch(), "start annex again")
	back = true
	poll.UntilNoError(t, "annex is back behind the main cluster", func() error {
		again, err := w.by(main(t)).Get(shortly(t), "kept", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if again.GetUID() != kept.GetUID() {
			t.Errorf("its UID changed to %s from %s", again.GetUID(), kept.GetUID())
		}
		return nil
	})
	expect.Gone(t, mainClients.Kube.CoreV1().Namespaces(), namespace)
	poll.Until(t, "discovery of the group is current", func() string { return isDiscovered(t, mainClients, w.group, 1) })
}

// testMainClusterRestarts: kube-apiserver collects the documents of all APIServices when it
// starts, even for groups that annex has taken over. OpenAPI of other aggregated servers
// breaks at that moment, long after their installation. The test stops the main cluster, so it
// does not run in parallel.
func testMainClusterRestarts(t *testing.T, s *sharedAnnex) {
	mainClients := main(t)
	followed := newMainWidgets(t, s)
	s.takeOver(t, followed)
	published := s.newWidgets(t)
	followed.create(t, "one")
	document := "/openapi/v3/apis/" + followed.group + "/v1"
	before := mainClients.get(t, document)

	expect.NoError(t, mainCluster.StopAPIServer(t.Context()))
	own := s.own(t)
	poll.UntilDone(t, "annex's own endpoint serves without the main cluster", func() (bool, string) {
		// The first list of a kind finds a watch cache that is not warm.
		got := own.get(t, "/apis/"+published.group+"/v1/widgets")
		return got.Code == http.StatusOK, got.String()
	})
	expect.NoError(t, mainCluster.StartAPIServer(t.Context()))
	poll.UntilDone(t, "the main cluster has collected annex's documents", func() (bool, string) {
		now := mainClients.documents(t)
		for _, version := range []string{"hosting.annex.dev/v1alpha1", published.group + "/v1", followed.group + "/v1"} {
			if now.index["apis/"+version] == "" {
				return false, version + " is not in v3"
			}
		}
		return now.paths["/apis/"+published.group+"/v1/widgets"] != nil && now.paths["/apis/"+followed.group+"/v1/widgets"] != nil, "v2 is incomplete"
	})
	checkUnchanged(t, s.before, mainClients.documents(t))
	if after := mainClients.readRepeatedly(t, document); !bytes.Equal(before.Body, after.Body) {
		t.Errorf("the v3 document changed from\n%s\nto\n%s", before.Body, after.Body)
	}
	mainClients.readRepeatedly(t, "/openapi/v3/apis/apiextensions.k8s.io/v1")
	poll.UntilNoError(t, "annex's objects can be read", func() error {
		_, err := followed.by(mainClients).Get(shortly(t), "one", metav1.GetOptions{})
		return err
	})
	untilCollected(t, s)
}

// untilCollected waits until the garbage collector watches ConfigMaps and widgets again. Until then it may finish
// the deletion of an owner before it knows the dependents, which other tests must not see.
func untilCollected(t *testing.T, s *sharedAnnex) {
	t.Helper()
	w := widgets{group: s.known, namespace: newNamespace(t)}
	mainClients := main(t)
	absent := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: uuid.NewUUID()}}
	configMaps := mainClients.Kube.CoreV1().ConfigMaps(w.namespace)
	expect.Create(t, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: absent}})
	widget := w.object("dependent")
	widget.SetOwnerReferences(absent)
	_, err := w.by(mainClients).Create(t.Context(), widget, metav1.CreateOptions{})
	expect.NoError(t, err)
	expect.Gone(t, configMaps, "dependent")
	w.untilGone(t, mainClients, "dependent")
}
