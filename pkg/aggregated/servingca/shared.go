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

	"github.com/annex-dev/annex/pkg/pki"
)

// errConflict is returned if another replica wrote first.
var errConflict = errors.New("another replica changed the Secret at the same time")

const (
	// retryInterval is the delay after the first failure; the interval of the lifetimes
	// is the longest.
	retryInterval = 250 * time.Millisecond
	// conflictInterval is the delay before reading what another replica wrote.
	conflictInterval = 10 * time.Millisecond
)

// SharedConfig is the configuration of a Shared.
type SharedConfig struct {
	Config
	// Main reads and writes the Secret.
	Main kubernetes.Interface
	// BindAddress and ExtraNames are added to the Service's names in the certificate.
	BindAddress net.IP
	ExtraNames  []string
}

// Shared is the CA that all replicas share, and this replica's certificate.
type Shared struct {
	dynamicServingCert

	config    SharedConfig
	triggered chan struct{}

	// syncing guards the following fields; only Open and Run sync.
	syncing sync.Mutex
	state   *State // as last read or written
	leaf    *pki.Pair
}

var _ Source = &Shared{}

// NewShared returns a Shared that has to be opened.
func NewShared(config SharedConfig) *Shared {
	config.setDefaults()
	return &Shared{config: config, triggered: make(chan struct{}, 1)}
}

// Open reads the CA, or creates it if this replica is the first, and signs the serving
// certificate. It may be called again after an error, except an ErrUnusable, which
// needs an operator.
func (s *Shared) Open(ctx context.Context) error {
	for {
		err := s.sync(ctx)
		if !errors.Is(err, errConflict) {
			return err
		}
	}
}

// Run rotates the CA together with other replicas and renews the certificate until ctx
// is done. It retries failed steps and keeps using the current CA meanwhile.
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
		if err == nil {
			err = s.publish(ctx)
		}
		switch {
		case err == nil:
			told, backoff = "", retryInterval
		case errors.Is(err, errConflict):
			delay = conflictInterval
		case ctx.Err() == nil:
			if err.Error() != told {
				told = err.Error()
				logger.Error(err, "Could not check or publish the serving CA, retrying with the current one in use")
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

// watch triggers a sync when the Secret changes. The sync reads the Secret again and
// ignores the content of the event.
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
		klog.FromContext(ctx).Error(err, "Could not watch the Secret of the serving CA, polling it")
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
			// No replica rotates an unreadable CA: renewing with the last one is safe.
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
		everywhere, err = s.config.isPropagated(ctx, state.Certificates())
		if err != nil {
			return state, "", err
		}
	}
	return advance(state, everywhere, s.config.Clock.Now(), s.config.Lifetimes)
}

// read gets the Secret, or creates it: from memory if it was deleted while annex runs,
// because the certificates it signed must stay valid.
func (s *Shared) read(ctx context.Context) (*corev1.Secret, error) {
	mainSecrets := s.config.Main.CoreV1().Secrets(s.config.Namespace)
	secret, err := mainSecrets.Get(ctx, SecretName(s.config.Name), metav1.GetOptions{})
	if err == nil {
		return secret, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the serving CA in the main cluster: %w", err)
	}
	state, message := s.state, "The Secret of the serving CA was deleted, restored it"
	if state == nil {
		message = "Created the serving CA"
		if state, err = newState(s.config.Clock.Now(), s.config.Lifetimes); err != nil {
			return nil, err
		}
	}
	secret = &corev1.Secret{ObjectMeta: s.meta()}
	if err := state.Write(secret); err != nil {
		return nil, err
	}
	secret, err = mainSecrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, errConflict
	}
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w; create the namespace of --publish-service, as artifacts/deploy does", err)
	}
	if err != nil {
		return nil, fmt.Errorf("create the serving CA in the main cluster: %w", err)
	}
	klog.FromContext(ctx).Info(message, "secret", klog.KObj(secret))
	return secret, nil
}

// write fails if the Secret was written since it was read.
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

// use applies a state: the bundle first, then a certificate that it verifies.
func (s *Shared) use(ctx context.Context, state *State) error {
	logger := klog.FromContext(ctx)
	if s.state != nil && !contains(s.state.Bundle(), []*x509.Certificate{state.Signing.Certificate()}) {
		logger.Error(nil, "The serving CA was replaced without overlap; requests fail until the APIServices have the new one")
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
	service := s.config.serverName()
	names := append([]string{service, service + ".cluster.local"}, s.config.ExtraNames...)
	leaf, err := state.Signing.Issue(pki.ServingTemplate(s.config.BindAddress, names...), now, s.config.Lifetimes.Certificate)
	if err != nil {
		return fmt.Errorf("sign the serving certificate: %w", err)
	}
	s.leaf = leaf
	s.setCert(leaf.CertPEM, leaf.KeyPEM)
	observe(servingMetric, leaf.Cert)
	logger.V(2).Info("Serving a new certificate", "expires", leaf.Cert.NotAfter, "ca", state.Signing.Certificate().Subject)
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
