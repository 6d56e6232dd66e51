// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testOwners: what an object that was created in annex owns in the main cluster survives the
// way back, although the owner gets another UID. The garbage collector runs.
func testOwners(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "owners.example.com")
	f.route(t)
	served := f.objects(f.main, "widgets", "v1")
	// Through the main cluster, so annex has them.
	owner := create(t, served, f.newObject("Widget", "owner", map[string]any{}))
	gone := create(t, served, f.newObject("Widget", "gone", map[string]any{}))
	late := create(t, served, f.newObject("Widget", "late", map[string]any{}))
	if _, err := f.inAnnex("widgets").Get(t.Context(), "owner", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	f.createOwned(t, "owned", owner.GetUID(), "owner")
	f.createOwned(t, "orphan", gone.GetUID(), "gone")
	f.createOwned(t, "of-late", late.GetUID(), "late")
	paired := create(t, served, f.newObject("Widget", "paired", map[string]any{}))
	f.createOwned(t, "of-paired", paired.GetUID(), "paired")

	resource := f.open(t)["widgets"]
	pairs := maincopy.NewPairs(f.group, resource)
	syncer := f.start(t, resource, pairs)
	expect.NoError(t, f.inAnnex("widgets").Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	drain(t, syncer)
	expect.NoError(t, f.copy.HoldGarbageCollector(t.Context(), f.group))
	f.unroute(t)
	expect.NoError(t, f.copy.Close(t.Context(), f.group))
	moved := get(t, served, "owner")
	if moved.GetUID() == owner.GetUID() {
		t.Fatalf("the owner kept its UID")
	}

	// The garbage collector has not seen it with its new UID, or knows no dependant of that.
	expect.NoError(t, served.Delete(t.Context(), "late", metav1.DeleteOptions{}))

	// The garbage collector may know the owner's UID from annex, but not this one: it tries to delete the
	// dependant, and is denied.
	f.checkDenied(t)
	before := f.denied(t)
	f.createOwned(t, "of-nothing", "00000000-0000-0000-0000-000000000002", "owner")
	poll.UntilDone(t, "the garbage collector has tried to delete the dependant", func() (bool, string) {
		denied := f.denied(t)
		return denied > before, fmt.Sprint(denied)
	})
	// A new process has to find the pairs.
	again := maincopy.NewPairs(f.group, resource)
	expect.NoError(t, again.Load(t.Context(), resource, f.record(resource)))
	if !f.record(resource).has(owner.GetUID(), moved.GetUID()) {
		t.Errorf("the pair of %s and %s is not recorded", owner.GetUID(), moved.GetUID())
	}
	// An owner is deleted after its pair was found. The garbage collector may have missed that, and assume that the
	// owner still exists in the main cluster.
	expect.NoError(t, served.Delete(t.Context(), "paired", metav1.DeleteOptions{}))
	rewritten, _, err := f.copy.RewriteOwners(t.Context(), again)
	expect.NoError(t, err)
	// The dependant of gone may have been deleted before the hold.
	if rewritten < 3 || rewritten > 4 {
		t.Errorf("%d dependants of gone, owner, late and paired were changed, want 3 or 4", rewritten)
	}
	rewritten, _, err = f.copy.RewriteOwners(t.Context(), again, resource)
	expect.NoError(t, err)
	if rewritten < 3 || rewritten > 4 {
		t.Errorf("%d dependants of gone, late, paired and nothing were changed, want 3 or 4", rewritten)
	}
	rewritten, skipped, err := f.copy.RewriteOwners(t.Context(), again, resource)
	expect.NoError(t, err)
	expect.Equal(t, int64(0), rewritten, "dependants that are changed again")
	for _, skip := range skipped {
		if skip.Group == f.group || skip.Group == "" {
			t.Errorf("skipped %s", skip)
		}
	}
	owned := expect.Get(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "owned")
	expect.Equal(t, moved.GetUID(), owned.OwnerReferences[0].UID)
	expect.NoError(t, f.copy.ReleaseGarbageCollector(t.Context(), f.group))
	// The garbage collector deletes what has no owner, so it has handled its other objects too.
	expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "orphan")
	expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "of-late")
	expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "of-paired")
	expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "of-nothing")
	f.createOwned(t, "late-orphan", "00000000-0000-0000-0000-000000000001", "missing")
	expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "late-orphan")
	kept := expect.Get(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "owned")
	if kept.UID != owned.UID || kept.DeletionTimestamp != nil {
		t.Errorf("the dependant was deleted: %+v", kept.ObjectMeta)
	}
	// It is deleted with its owner, as before.
	expect.NoError(t, served.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps(namespace), "owned")
}

func (f *fixture) createOwned(t *testing.T, name string, owner types.UID, ownerName string) {
	t.Helper()
	expect.Create(t, f.main.Kube.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: f.group + "/v1", Kind: "Widget", Name: ownerName, UID: owner}},
	}})
}

// checkDenied checks that the policy denies the garbage collector's requests.
func (f *fixture) checkDenied(t *testing.T) {
	t.Helper()
	collector, err := mainCluster.ConfigFor("system:serviceaccount:kube-system:generic-garbage-collector", "system:masters")
	expect.NoError(t, err)
	client, err := restclient.HTTPClientFor(collector)
	expect.NoError(t, err)
	bodies := map[string]string{http.MethodDelete: "", http.MethodPatch: `{"metadata":{"labels":{"a":"b"}}}`}
	for method := range bodies {
		response, err := clients.Send(t.Context(), client, method, collector.Host+"/api/v1/namespaces/"+namespace+"/configmaps/owned", bodies[method],
			"Content-Type", string(types.MergePatchType))
		expect.NoError(t, err)
		response.ExpectText(t, http.StatusUnprocessableEntity, "is kept until its ownerReferences are right", method)
	}
}

// denied returns the number of requests that the policy has denied.
func (f *fixture) denied(t *testing.T) (count float64) {
	t.Helper()
	response, err := clients.Send(t.Context(), f.main.HTTP, http.MethodGet, mainCluster.URL+"/metrics", "")
	expect.NoError(t, err)
	for line := range strings.Lines(string(response.Body)) {
		if !strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") || !strings.Contains(line, f.group) || !strings.Contains(line, `"deny"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
		expect.NoError(t, err)
		count += value
	}
	return count
}

// route leads the group's requests from the main cluster to annex.
func (f *fixture) route(t *testing.T) {
	t.Helper()
	const service = "routed"
	system := "annex-system"
	expect.NoError(t, mainCluster.ExternalNameService(t.Context(), system, service))
	port := f.forward(t, system, service)
	name := "v1." + f.group
	edited := expect.Get(t, f.main.APIServices, name)
	delete(edited.Labels, "kube-aggregator.kubernetes.io/automanaged")
	edited.Spec.CABundle = mainCluster.CA()
	edited.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: system, Name: service, Port: &port}
	expect.Update(t, f.main.APIServices, edited)
	poll.UntilDone(t, "requests reach annex", func() (bool, string) {
		create := f.newObject("Widget", "probe", map[string]any{})
		_, err := f.inAnnex("widgets").Create(t.Context(), create, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return false, err.Error()
		}
		_, err = f.objects(f.main, "widgets", "v1").Get(t.Context(), "probe", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// unroute gives the group back to the main cluster.
func (f *fixture) unroute(t *testing.T) {
	t.Helper()
	name := "v1." + f.group
	expect.Delete(t, f.main.APIServices, name)
	poll.UntilDone(t, "the main cluster serves the group", func() (bool, string) {
		found, err := f.main.APIServices.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && found.Spec.Service == nil, fmt.Sprint(found, err)
	})
}

// forward sends requests to annex with its administrator's login, and returns the port.
func (f *fixture) forward(t *testing.T, namespace, service string) int32 {
	t.Helper()
	certificate, key, err := mainCluster.ServingCertificate(namespace, service)
	expect.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	expect.NoError(t, err)
	target, err := url.Parse(f.standIn.Config.Host)
	expect.NoError(t, err)
	transport, err := restclient.TransportFor(f.standIn.Config)
	expect.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	expect.NoError(t, err)
	server := &http.Server{Handler: proxy, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		expect.Succeeds(t, server.Close())
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return int32(listener.Addr().(*net.TCPAddr).Port)
}
