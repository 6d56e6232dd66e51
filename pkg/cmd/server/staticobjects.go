// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// static has the sources of static objects, and whether readiness waits for them.
type static struct {
	sources *staticobjects.Sources
	settled atomic.Bool
}

func newStatic(o *options.Static) (*static, error) {
	sources, err := o.Sources()
	if err != nil {
		return nil, err
	}
	return &static{sources: sources}, nil
}

// settle ends the wait of readiness: static objects are applied or cannot be, or another replica
// leads, which applies them.
func (s *static) settle() { s.settled.Store(true) }

// addTo makes the readiness of a chain wait for static objects, if there is a source.
func (s *static) addTo(chain *apiserver.Chain) error {
	if len(s.sources.Locations()) == 0 {
		return nil
	}
	err := chain.AddReadyCheck(healthz.NamedCheck("static-objects", func(*http.Request) error {
		if !s.settled.Load() {
			return errors.New("not all static objects were applied yet")
		}
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the readiness check of static objects: %w", err)
	}
	return nil
}
