// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"

	"github.com/annex-dev/annex/pkg/pki"
)

// errConflict is a write that another replica was ahead of.
var errConflict = errors.New("another replica changed the Secret at the same time")

const (
	// retryInterval is how soon to try again after the first failure; the
	// interval of the lifetimes is the longest.
	retryInterval = 250 * time.Millisecond
	// conflictInterval is how soon to read what another replica wrote.
	conflictInterval = 10 * time.Millisecond
)

// SharedConfig is what a Shared needs.
type SharedConfig struct {
	// Main reads and writes the Secret.
	Main kubernetes.Interface
	// MainAPIServices tell what the main cluster verifies annex with.
	MainAPIServices apiregistrationclient.APIServiceInterface
	// Namespace and Name are those of the Service that leads to annex.
	Namespace, Name string
	// BindAddress and ExtraNames go into the certificate beside the Service's names.
	BindAddress net.IP
	ExtraNames  []string
	// Lifetimes must be valid.
	Lifetimes Lifetimes
	// Clock is the real one when it is nil.
	Clock clock.Clock
}

// Shared is the CA that all replicas share, and this replica's certificate.
type Shared struct {
	dynamicServingCert

	config    SharedConfig
	triggered chan struct{}

	// syncing guards what follows; only Open and Run sync.
	syncing sync.Mutex
	state   *State // as last read or written
	leaf    *pki.Pair
}

var _ Source = &Shared{}

// NewShared returns a Shared that knows nothing yet: Open it before anything else.
func NewShared(config SharedConfig) *Shared {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Shared{config: config, triggered: make(chan struct{}, 1)}
}

// Open reads the CA, or makes it if this replica is the first, and signs the
// serving certificate. It may be called again after an error, unless that is an
// ErrUnusable, which only a person can mend.
func (s *Shared) Open(ctx context.Context) error {
	for {
		err := s.sync(ctx)
		if !errors.Is(err, errConflict) {
			return err
		}
	}
}

// Run takes its part in rotating the CA and renews the certificate until ctx is
// done. What fails is tried again, with what annex has in use until then.
func (s *Shared) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { s.watch(ctx) })

	logger := klog.FromContext(ctx)
	var told string
	backoff := retryInterval
	for {
		delay := s.config.Lifetimes.interval()
		err := s.sync(ctx)
		switch {
		case err == nil:
			told, backoff = "", retryInterval
		case errors.Is(err, errConflict):
			delay = conflictInterval
		case ctx.Err() == nil:
			if err.Error() != told {
				told = err.Error()
				logger.Error(err, "Could not check the serving CA, will try again and goes on with the one in use")
			}
			delay = min(backoff, delay)
			backoff *= 2
		}
		timer := s.config.Clock.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-s.triggered:
		case <-timer.C():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// watch looks at the Secret as soon as it changes. The content of the event does
// not count: what is decided is decided on a fresh read.
func (s *Shared) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.config.Main, 0,
		informers.WithNamespace(s.config.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, SecretName(s.config.Name)).String()
		}))
	informer := factory.Core().V1().Secrets().Informer()
	trigger := func(any) {
		select {
		case s.triggered <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: trigger, UpdateFunc: func(_, changed any) { trigger(changed) }, DeleteFunc: trigger,
	}); err != nil {
		klog.FromContext(ctx).Error(err, "Could not watch the Secret of the serving CA, looks at it from time to time")
		return
	}
	informer.RunWithContext(ctx)
}

// sync reads the Secret, takes the step that is due, if any, and uses the result.
func (s *Shared) sync(ctx context.Context) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	secret, err := s.read(ctx)
	if err != nil {
		return err
	}
	state, err := Parse(secret)
	observeRefused(err != nil)
	if err != nil {
		if s.state != nil {
			// Nobody rotates a CA that nobody can read: renewing with it is safe.
			err = errors.Join(err, s.use(ctx, s.state))
		}
		return err
	}
	if err := s.use(ctx, state); err != nil {
		return err
	}
	for {
		next, due, err := s.advance(ctx, state)
		if err != nil || due == "" {
			return err
		}
		if secret, err = s.write(ctx, secret, next); err != nil {
			return err
		}
		klog.FromContext(ctx).Info(string(due), "secret", klog.KObj(secret))
		state = next
		if err := s.use(ctx, state); err != nil {
			return err
		}
	}
}

func (s *Shared) advance(ctx context.Context, state *State) (*State, step, error) {
	everywhere := false
	if state.Next != nil {
		var err error
		everywhere, err = caBundlePropagated(ctx, s.config.MainAPIServices, s.config.Namespace, s.config.Name, state.Certificates())
		if err != nil {
			return state, "", err
		}
	}
	return advance(state, everywhere, s.config.Clock.Now(), s.config.Lifetimes)
}

// read gets the Secret, or makes it: from what is in memory if somebody deleted
// it while annex runs, for what was signed must stay good.
func (s *Shared) read(ctx context.Context) (*corev1.Secret, error) {
	mainSecrets := s.config.Main.CoreV1().Secrets(s.config.Namespace)
	secret, err := mainSecrets.Get(ctx, SecretName(s.config.Name), metav1.GetOptions{})
	if err == nil {
		return secret, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the serving CA in the main cluster: %w", err)
	}
	state, message := s.state, "The Secret of the serving CA was deleted, put it back"
	if state == nil {
		message = "Made the serving CA"
		if state, err = newState(s.config.Clock.Now(), s.config.Lifetimes); err != nil {
			return nil, err
		}
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.config.Namespace,
		Name:      SecretName(s.config.Name),
		Labels:    map[string]string{"app.kubernetes.io/managed-by": "annex"},
	}}
	if err := state.Write(secret); err != nil {
		return nil, err
	}
	secret, err = mainSecrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, errConflict
	}
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w; make the namespace of --publish-service, as artifacts/deploy does", err)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the serving CA in the main cluster: %w", err)
	}
	klog.FromContext(ctx).Info(message, "secret", klog.KObj(secret))
	return secret, nil
}

// write succeeds only if nobody wrote since the Secret was read.
func (s *Shared) write(ctx context.Context, secret *corev1.Secret, state *State) (*corev1.Secret, error) {
	secret = secret.DeepCopy()
	if err := state.Write(secret); err != nil {
		return nil, err
	}
	written, err := s.config.Main.CoreV1().Secrets(s.config.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, errConflict
	case err != nil:
		return nil, fmt.Errorf("update the serving CA in the main cluster: %w", err)
	}
	return written, nil
}

// use makes a state the one in use: the bundle first, then a certificate that it
// verifies.
func (s *Shared) use(ctx context.Context, state *State) error {
	logger := klog.FromContext(ctx)
	if s.state != nil && !contains(s.state.Bundle(), []*x509.Certificate{state.Signing.Certificate()}) {
		logger.Error(nil, "The serving CA was replaced without overlap; requests fail until the APIServices carry the new one")
	}
	s.state = state
	s.setBundle(state.Bundle())
	observe(caMetric, state.Signing.Certificate())
	observe(nextCAMetric, certificate(state.Next))
	observe(previousCAMetric, newest(state.Previous))

	now := s.config.Clock.Now()
	if s.leaf != nil && s.leaf.Cert.CheckSignatureFrom(state.Signing.Certificate()) == nil && pki.IsFresh(s.leaf.Cert, now) {
		return nil
	}
	service := s.config.Name + "." + s.config.Namespace + ".svc"
	names := append([]string{service, service + ".cluster.local"}, s.config.ExtraNames...)
	leaf, err := state.Signing.Issue(pki.ServingTemplate(s.config.BindAddress, names...), now, s.config.Lifetimes.Certificate)
	if err != nil {
		return fmt.Errorf("sign the serving certificate: %w", err)
	}
	s.leaf = leaf
	s.setCert(leaf.CertPEM, leaf.KeyPEM)
	observe(servingMetric, leaf.Cert)
	logger.V(2).Info("Serves with a new certificate", "expires", leaf.Cert.NotAfter, "ca", state.Signing.Certificate().Subject)
	return nil
}

func certificate(authority *pki.Authority) *x509.Certificate {
	if authority == nil {
		return nil
	}
	return authority.Certificate()
}

func newest(certificates []*x509.Certificate) *x509.Certificate {
	if len(certificates) == 0 {
		return nil
	}
	return certificates[len(certificates)-1]
}
