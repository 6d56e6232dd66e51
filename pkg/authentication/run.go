// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/configfile"
)

const (
	// The issuers of a changed file must respond within reachTimeout. Upstream's client
	// ends a request after that time.
	reachTimeout = 30 * time.Second
	// The issuers are checked every reachInterval meanwhile.
	reachInterval = 100 * time.Millisecond
	// A replaced set serves the requests that hold it already during retirement.
	retirement = time.Minute
)

// Run fetches the issuers' keys and reloads the file until ctx is done.
func (s *Structured) Run(ctx context.Context) {
	if !s.hasFile() {
		return
	}
	defer s.retiring.Wait()
	metrics.RegisterMetrics()
	metrics.RecordAuthenticationConfigLastConfigInfo(s.options.APIServerID, string(s.data))
	// annex does not wait for the issuers, which may start later.
	first, err := s.newAuthenticatorSet(ctx, s.started)
	if err != nil {
		// It was validated when annex started.
		klog.FromContext(ctx).Error(err, "JWTs are rejected until the file changes", "file", s.options.Path)
	} else {
		s.current.Store(first)
	}
	configfile.Watch(ctx, configfile.File{Path: s.options.Path, Loaded: s.data, Apply: s.apply, Record: s.record})
}

// apply uses a changed file once all its issuers have responded. Until then, and if it
// is invalid, the current configuration stays in use.
func (s *Structured) apply(ctx context.Context, data []byte) error {
	config, err := s.load(data)
	if err != nil {
		return configfile.Explain(s.options.Path, data, err)
	}
	next, err := s.newAuthenticatorSet(ctx, config)
	if err != nil {
		return err
	}
	if err := next.awaitIssuers(ctx); err != nil {
		next.cancel()
		return err
	}
	s.retire(ctx, s.current.Swap(next))
	return nil
}

// awaitIssuers returns nil when all issuers were reached, or the reason why not.
func (g *authenticatorSet) awaitIssuers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, reachInterval, true, func(context.Context) (bool, error) {
		last = g.checkIssuers()
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("its issuers cannot be reached: %w", last)
	}
	return err
}

// retire cancels a replaced set and removes the metrics of its issuers, except the issuers
// that the current set has too.
func (s *Structured) retire(ctx context.Context, old *authenticatorSet) {
	s.retiring.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(retirement):
		}
		old.cancel()
		for issuer := range old.issuers.Difference(s.current.Load().issuers) {
			oidc.DeleteJWKSFetchMetrics(issuer, s.options.APIServerID)
		}
	})
}

// record counts changes of the file as kube-apiserver does.
func (s *Structured) record(data []byte, err error) {
	if err != nil {
		metrics.RecordAuthenticationConfigAutomaticReloadFailure(s.options.APIServerID)
		return
	}
	metrics.RecordAuthenticationConfigAutomaticReloadSuccess(s.options.APIServerID, string(data))
}
