// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestRotation replaces the CA of two replicas during requests, as docs/certificates.md does after a leak of its key.
func TestRotation(t *testing.T) {
	deleteCA(t)
	etcd := etcdtest.Start(t, nil)
	flags := []string{"--etcd-servers=" + etcd.Endpoint(), "--shutdown-delay-duration=0s", "--serving-ca-propagation=1s"}
	annex := annextest.Start(t, mainCluster, flags...)
	second, err := annex.Launch(t.TempDir(), flags...)
	expect.NoError(t, err)
	t.Cleanup(func() { second.Stop(t) })
	before := mustParse(t, sharedSecret(t))
	for _, address := range []string{annex.Address(), second.Address()} {
		if _, err := handshake(t.Context(), address, before.Bundle()); err != nil {
			t.Errorf("replica %s: %v", address, err)
		}
	}
	load := startConnections(t, annex.Installation)
	annotate(t, servingca.RotateAnnotation, "now")
	poll.UntilDone(t, "another CA signs", func() (bool, string) {
		now := mustParse(t, sharedSecret(t))
		return !now.Signing.Certificate().Equal(before.Signing.Certificate()) && !now.Rotate, now.Signing.Certificate().Subject.String()
	})
	poll.UntilDone(t, "more requests", load.enough)
	annotate(t, servingca.PreviousUntilAnnotation, time.Now().UTC().Format(time.RFC3339))
	poll.UntilDone(t, "the APIService has the new CA alone", func() (bool, string) {
		bundle := getAPIService(t, hostingName).Spec.CABundle
		found, err := pki.ParseBundle(bundle)
		return err == nil && len(found) == 1 && !found[0].Equal(before.Signing.Certificate()), string(bundle)
	})
	load.end(t, 2)
}

// TestConcurrentRotation: five replicas create and rotate one CA concurrently. It checks every
// state of the Secret.
func TestConcurrentRotation(t *testing.T) {
	const namespace, replicas = "certificates-conflicts", 5
	client := kube(t, mainCluster.Config)
	expect.Create(t, client.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	watch, err := client.CoreV1().Secrets(namespace).Watch(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	defer watch.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	shared := make([]*servingca.Shared, replicas)
	var opened sync.WaitGroup
	for i := range shared {
		shared[i] = servingca.NewShared(servingca.SharedConfig{Main: client, Config: servingca.Config{
			MainAPIServices: clients.For(t, mainCluster.Config).APIServices, Namespace: namespace, Name: "annex",
			Lifetimes: servingca.Lifetimes{CA: 6 * time.Second, Certificate: time.Second, Propagation: 500 * time.Millisecond},
		}})
		opened.Go(func() {
			expect.Succeeds(t, shared[i].Open(ctx))
		})
	}
	opened.Wait()
	first := shared[0].CABundle()
	for i, replica := range shared {
		if !bytes.Equal(replica.CABundle(), first) {
			t.Errorf("replica %d has another CA", i)
		}
		running.Go(func() { replica.Run(ctx) })
	}
	var phases []string
	var last *servingca.State
	for rotated := false; !rotated; {
		select {
		case event := <-watch.ResultChan():
			state := mustParse(t, event.Object.(*corev1.Secret))
			if last != nil && !slices.ContainsFunc(last.Certificates(), state.Signing.Certificate().Equal) {
				t.Errorf("after %q the signing CA was not in the bundle before", phases)
			}
			last = state
			phases = append(phases, phase(state))
			rotated = len(phases) >= 5
		case <-time.After(poll.Timeout):
			t.Fatalf("the rotation stopped after %q", phases)
		}
	}
	if got, want := strings.Join(phases, ", "), "stable, next, next distributed, previous, stable"; got != want {
		t.Errorf("the Secret went through %s; want %s", got, want)
	}
	want := last.Bundle()
	for i, replica := range shared {
		poll.UntilDone(t, fmt.Sprintf("replica %d has the new bundle", i), func() (bool, string) {
			return bytes.Equal(replica.CABundle(), want), string(replica.CABundle())
		})
	}
}

func phase(state *servingca.State) string {
	switch {
	case state.Next != nil && !state.DistributedSince.IsZero():
		return "next distributed"
	case state.Next != nil:
		return "next"
	case len(state.Previous) > 0:
		return "previous"
	}
	return "stable"
}

// TestSecretIsRestored deletes the CA while annex runs.
func TestSecretIsRestored(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	before := sharedSecret(t)
	load := startConnections(t, annex.Installation)
	deleteCA(t)
	expect.Eventually(t, kube(t, mainCluster.Config).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName), "the Secret is restored", func(found *corev1.Secret) bool {
		return bytes.Equal(found.Data[servingca.CertKey], before.Data[servingca.CertKey])
	})
	expect.Eventually(t, kube(t, mainCluster.Config).CoreV1().ConfigMaps(annextest.Namespace), servingca.SecretName(annextest.ServiceName), "the bundle is published", func(found *corev1.ConfigMap) bool {
		return found.Data[servingca.BundleKey] == string(before.Data[servingca.BundleKey])
	})
	poll.UntilDone(t, "enough requests", load.enough)
	load.end(t, 1)
}

// TestDamagedSecret: a starting replica refuses a damaged Secret, a running one does not change
// it.
func TestDamagedSecret(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	secrets := kube(t, mainCluster.Config).CoreV1().Secrets(annextest.Namespace)
	t.Cleanup(func() { deleteCA(t) })
	damaged := expect.Patch(t, secrets, servingca.SecretName(annextest.ServiceName), `{"data":{"ca.key":"anVuaw=="}}`)
	load := startConnections(t, annex.Installation)
	_, err := annex.Launch(t.TempDir())
	expect.Error(t, err, "the Secret annex-system/annex-serving-ca of the main cluster", "ca.key", "restore it, or delete it")
	poll.UntilDone(t, "the metric reports it", func() (bool, string) {
		text := metrics(t, annex)
		return strings.Contains(text, "\nannex_published_certificate_refused 1\n"), grep(text, "annex_published")
	})
	if found := sharedSecret(t); found.ResourceVersion != damaged.ResourceVersion {
		t.Errorf("the damaged Secret was changed: %v", found.Data)
	}
	poll.UntilDone(t, "enough requests", load.enough)
	load.end(t, 1)
}

// TestEditedBundle edits the CA bundle of annex's APIService.
func TestEditedBundle(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	other, err := pki.NewAuthority("wrong", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	expect.NoError(t, err)
	right := getAPIService(t, hostingName).Spec.CABundle
	for what, edit := range map[string]func(*testing.T){
		"another CA": func(t *testing.T) { patchAPIService(t, map[string]any{"caBundle": other.CertPEM()}) },
		"no CA":      func(t *testing.T) { patchAPIService(t, map[string]any{"caBundle": nil}) },
		"verification switched off": func(t *testing.T) {
			patchAPIService(t, map[string]any{"caBundle": nil, "insecureSkipTLSVerify": true})
		},
	} {
		edit(t)
		poll.UntilDone(t, what+" is corrected", func() (bool, string) {
			spec := getAPIService(t, hostingName).Spec
			return bytes.Equal(spec.CABundle, right) && !spec.InsecureSkipTLSVerify, fmt.Sprintf("%t, %s", spec.InsecureSkipTLSVerify, spec.CABundle)
		})
	}
	expect.Succeeds(t, annex.WaitHosting(t.Context()))
}

// TestMetrics reads the expiry metrics of a running annex.
func TestMetrics(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	text := metrics(t, annex)
	for _, certificate := range []string{"ca", "serving", "admin", "published-ca", "published-serving"} {
		if series := fmt.Sprintf("annex_certificate_expiration_timestamp_seconds{certificate=%q} ", certificate); !strings.Contains(text, series) {
			t.Errorf("no %s in\n%s", series, grep(text, "annex_certificate"))
		}
	}
}
