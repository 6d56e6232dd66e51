// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"sync/atomic"
)

// CABundleSource provides the certificates, in PEM, that verify annex's serving
// certificate.
type CABundleSource interface {
	CABundle() []byte
	// AddListener registers a function that is called after each change.
	AddListener(listener func())
}

// CABundleUntil returns a source whose listeners are called until ctx is done. The source
// cannot remove one: what stays registered there does nothing.
func CABundleUntil(ctx context.Context, source CABundleSource) CABundleSource {
	return caBundle{source, func(end func()) { context.AfterFunc(ctx, end) }}
}

type caBundle struct {
	CABundleSource
	onEnd func(func())
}

// AddListener implements CABundleSource.
func (b caBundle) AddListener(listener func()) {
	var current atomic.Pointer[func()]
	current.Store(&listener)
	b.onEnd(func() { current.Store(nil) })
	b.CABundleSource.AddListener(func() {
		if listener := current.Load(); listener != nil {
			(*listener)()
		}
	})
}
