// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"

	"k8s.io/klog/v2"
)

// Run asks the issuers for their keys and follows the file until ctx is done.
func (s *Structured) Run(ctx context.Context) {
	first, err := s.newGeneration(ctx, s.started)
	if err != nil {
		// The same was checked when annex started.
		klog.FromContext(ctx).Error(err, "Nobody can log in with a JWT", "file", s.options.Path)
		return
	}
	s.current.Store(first)
	<-ctx.Done()
	first.end()
}
