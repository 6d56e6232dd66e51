// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// counter counts the certificates that a server was notified of.
type counter struct{ n int }

func (c *counter) Enqueue() { c.n++ }

// mainFake is a main cluster for replicas of one process. It returns no conflicts; the
// tests on a real one cover those.
type mainFake struct {
	kube       *fake.Clientset
	aggregator *aggregatorfake.Clientset
	clock      *clocktesting.FakeClock
}

func newMainFake(apiServices ...runtime.Object) *mainFake {
	return &mainFake{fake.NewClientset(), aggregatorfake.NewSimpleClientset(apiServices...), clocktesting.NewFakeClock(epoch)}
}

func (m *mainFake) config() Config {
	return Config{
		MainAPIServices: m.aggregator.ApiregistrationV1().APIServices(), Namespace: "annex-system", Name: "annex", Lifetimes: lifetimes, Clock: m.clock,
	}
}

func (m *mainFake) replica() *Shared {
	return NewShared(SharedConfig{Config: m.config(), Main: m.kube, BindAddress: net.ParseIP("192.0.2.7"), ExtraNames: []string{"annex.example.com"}})
}

func (m *mainFake) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := expect.Get(t, m.kube.CoreV1().Secrets("annex-system"), SecretName("annex"))
	return secret
}

func (m *mainFake) change(t *testing.T, change func(*corev1.Secret)) {
	t.Helper()
	secret := m.secret(t)
	change(secret)
	expect.Update(t, m.kube.CoreV1().Secrets("annex-system"), secret)
}

func mustOpen(t *testing.T, replicas ...*Shared) {
	t.Helper()
	for _, replica := range replicas {
		expect.NoError(t, replica.Open(t.Context()))
	}
}

func ours(name string, bundle []byte) *apiregistrationv1.APIService {
	version, group, _ := strings.Cut(name, ".")
	made := grouptest.Published(group, version, "")
	made.Spec.CABundle = bundle
	return made
}

func TestReplicasShareOneCA(t *testing.T) {
	t.Parallel()
	main := newMainFake()
	a, b := main.replica(), main.replica()
	mustOpen(t, a, b)
	expect.Equal(t, string(a.CABundle()), string(b.CABundle()), "the bundles differ")
	certA, keyA := a.ServingCert().CurrentCertKeyContent()
	_, keyB := b.ServingCert().CurrentCertKeyContent()
	if len(keyA) == 0 || string(keyA) == string(keyB) {
		t.Error("the replicas serve with one key")
	}
	for _, name := range []string{"annex.annex-system.svc", "annex.annex-system.svc.cluster.local", "localhost", "127.0.0.1", "192.0.2.7", "annex.example.com"} {
		expect.Succeeds(t, verify(t, b.CABundle(), certA, name, epoch), "as %s", name)
	}
	if err := verify(t, b.CABundle(), certA, "other.annex-system.svc", epoch); err == nil {
		t.Error("the certificate is good for a foreign Service")
	}
}

func TestSharedRotates(t *testing.T) {
	t.Parallel()
	main := newMainFake(ours("v1.a", nil), ours("v1.b", nil))
	mainAPIServices := main.aggregator.ApiregistrationV1().APIServices()
	a, b := main.replica(), main.replica()
	mustOpen(t, a, b)
	old := string(a.CABundle())
	var told int
	served := &counter{}
	a.AddListener(func() { told++ })
	a.ServingCert().AddListener(served)

	carry := func(name string) {
		t.Helper()
		expect.Update(t, mainAPIServices, ours(name, a.CABundle()))
	}
	phase := func(what string, at time.Duration, wantTold, wantServed, wantBundle int) {
		t.Helper()
		main.clock.SetTime(epoch.Add(at))
		// b reads what a wrote, and a what b wrote.
		mustOpen(t, b, a)
		bundle, err := pki.ParseBundle(a.CABundle())
		expect.NoError(t, err)
		if told != wantTold || served.n != wantServed || len(bundle) != wantBundle {
			t.Errorf("%s: the bundle changed %d times, the certificate %d times, want %d and %d; the bundle has %d CAs, want %d",
				what, told, served.n, wantTold, wantServed, len(bundle), wantBundle)
		}
		for _, replica := range []*Shared{a, b} {
			cert, _ := replica.ServingCert().CurrentCertKeyContent()
			expect.Succeeds(t, verify(t, a.CABundle(), cert, "annex.annex-system.svc", main.clock.Now()), "%s", what)
		}
	}
	phase("new", time.Hour, 0, 0, 1)
	phase("renewed", 21*time.Hour, 0, 1, 1)
	phase("next is there", 200*time.Hour, 1, 2, 2)
	carry("v1.a")
	phase("only one APIService carries it", 202*time.Hour, 1, 2, 2)
	carry("v1.b")
	phase("all carry it", 203*time.Hour, 1, 2, 2)
	phase("for the propagation time", 204*time.Hour, 1, 3, 2)
	phase("the old one may be in use", 204*time.Hour+30*time.Hour, 1, 4, 2)
	phase("the old one is gone", 204*time.Hour+31*time.Hour, 2, 4, 1)
	if string(a.CABundle()) == old {
		t.Error("the bundle has not changed")
	}
}

func TestDeletedSecretIsPutBack(t *testing.T) {
	t.Parallel()
	main := newMainFake()
	a := main.replica()
	mustOpen(t, a)
	before := main.secret(t)
	expect.Delete(t, main.kube.CoreV1().Secrets("annex-system"), SecretName("annex"))
	cert, _ := a.ServingCert().CurrentCertKeyContent()
	mustOpen(t, a)
	expect.Equal(t, before.Data, main.secret(t).Data, "another one was put back")
	if after, _ := a.ServingCert().CurrentCertKeyContent(); string(after) != string(cert) {
		t.Error("another certificate is served")
	}
}

// TestPublish reads the bundle without the Secret, after a start and after another client changed it.
func TestPublish(t *testing.T) {
	t.Parallel()
	main := newMainFake()
	a := main.replica()
	mustOpen(t, a)
	configMaps := main.kube.CoreV1().ConfigMaps("annex-system")
	for range 2 {
		expect.NoError(t, a.publish(t.Context()))
		published := expect.Get(t, configMaps, SecretName("annex"))
		expect.Equal(t, map[string]string{BundleKey: string(a.CABundle())}, published.Data, "the bundle")
		published.Data = map[string]string{BundleKey: "another", "ca.key": "more"}
		_, err := configMaps.Update(t.Context(), published, metav1.UpdateOptions{})
		expect.NoError(t, err)
	}
}

func TestUnusableSecretIsNotTouched(t *testing.T) {
	t.Parallel()
	damages := map[string]func(*corev1.Secret){
		"foreign": func(s *corev1.Secret) {
			s.Type, s.Data = corev1.SecretTypeTLS, map[string][]byte{"tls.crt": []byte("x")}
		},
		"damaged": func(s *corev1.Secret) { s.Data[PrivateKey] = nil },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			main := newMainFake()
			running := main.replica()
			mustOpen(t, running)
			bundle := string(running.CABundle())
			main.change(t, damage)
			before := main.secret(t)
			// The certificate is due for renewal, and the CA for rotation.
			main.clock.Step(250 * time.Hour)
			for what, replica := range map[string]*Shared{"running": running, "starting": main.replica()} {
				if err := replica.Open(t.Context()); !errors.Is(err, ErrUnusable) {
					t.Errorf("%s replica: error %v, want an ErrUnusable", what, err)
				}
			}
			expect.Equal(t, before, main.secret(t), "the Secret changed")
			if string(running.CABundle()) != bundle {
				t.Error("the running replica published another bundle")
			}
			cert, _ := running.ServingCert().CurrentCertKeyContent()
			expect.Succeeds(t, verify(t, []byte(bundle), cert, "localhost", main.clock.Now()), "the running replica did not renew its certificate")
		})
	}
}

func TestMainClusterThatRefuses(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{
		"get":    "read the serving CA in the main cluster",
		"create": "create the serving CA in the main cluster",
	} {
		main := newMainFake()
		main.kube.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), SecretName("annex"), errors.New("no RoleBinding"))
		})
		err := main.replica().Open(t.Context())
		expect.Error(t, err, want, "forbidden", "no RoleBinding")
		if !apierrors.IsForbidden(err) || errors.Is(err, ErrUnusable) {
			t.Errorf("%s: the error hides that the main cluster refused: %v", verb, err)
		}
	}
}

// TestRotationWaitsForAResponse keeps the previous CA while the APIServices cannot be
// read.
func TestRotationWaitsForAResponse(t *testing.T) {
	t.Parallel()
	main := newMainFake()
	a := main.replica()
	mustOpen(t, a)
	main.aggregator.PrependReactor("list", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("away"))
	})
	for at := 200 * time.Hour; at < 210*time.Hour; at += time.Hour {
		main.clock.SetTime(epoch.Add(at))
		expect.Error(t, a.Open(t.Context()), "list the APIServices of annex", "away")
	}
	if state := mustParse(t, main.secret(t)); state.Next == nil || !state.DistributedSince.IsZero() || len(state.Previous) > 0 {
		t.Errorf("the rotation continued: %v", subjects(state.Certificates()))
	}
}

// TestRunWatchesTheSecret checks that a running replica uses what another one wrote
// without waiting for the next interval.
func TestRunWatchesTheSecret(t *testing.T) {
	t.Parallel()
	main := newMainFake()
	a := main.replica()
	mustOpen(t, a)
	changed := make(chan struct{}, 1)
	a.AddListener(func() { changed <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.Run(ctx)
	}()
	next := rotating(t)
	for waiting := true; waiting; {
		// The fake does not report a change to watches that begin later, so repeat the change.
		main.change(t, func(secret *corev1.Secret) {
			expect.Succeeds(t, next.Write(secret))
		})
		select {
		case <-changed:
			waiting = false
		case <-time.After(50 * time.Millisecond):
		}
		if t.Context().Err() != nil {
			t.Fatal("the replica did not see the change")
		}
	}
	expect.Equal(t, string(next.Bundle()), string(a.CABundle()), "it publishes another bundle")
	cancel()
	<-stopped
}

func TestDistributed(t *testing.T) {
	t.Parallel()
	state := rotating(t)
	whole, half := state.Bundle(), state.Signing.CertPEM()
	local, foreign := ours("v1.local", nil), ours("v1.foreign", nil)
	local.Spec.Service, foreign.Labels = nil, nil
	tests := map[string]struct {
		apiServices []runtime.Object
		want        bool
	}{
		"none":                    {nil, true},
		"all":                     {[]runtime.Object{ours("v1.a", whole), ours("v1.b", whole)}, true},
		"one does not":            {[]runtime.Object{ours("v1.a", whole), ours("v1.b", half)}, false},
		"one is empty":            {[]runtime.Object{ours("v1.a", nil)}, false},
		"one is damaged":          {[]runtime.Object{ours("v1.a", []byte("junk"))}, false},
		"more is no harm":         {[]runtime.Object{ours("v1.a", append(mustState(t, epoch).Bundle(), whole...))}, true},
		"foreign does not count":  {[]runtime.Object{ours("v1.a", whole), foreign}, true},
		"taken back to main":      {[]runtime.Object{ours("v1.a", whole), local}, true},
		"without what it has now": {[]runtime.Object{ours("v1.a", state.Next.CertPEM())}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := newMainFake(tt.apiServices...).config()
			got, err := config.isPropagated(t.Context(), state.Certificates())
			if err != nil || got != tt.want {
				t.Errorf("distributed = %t, %v, want %t", got, err, tt.want)
			}
		})
	}
}
