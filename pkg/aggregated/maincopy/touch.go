// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// touchedAnnotation is on an object between two writes, without which the API server would ignore
// the second.
const touchedAnnotation = "annex.dev/touched"

// raiseStep is how far the main cluster's revision is raised above that of an object, so that it
// suffices for the next ones.
const raiseStep = 1_000

// isNewer reports whether the resource version in the main cluster is above annex's. No client may
// see an object's resource version decrease when the main cluster serves it again.
func isNewer(main, annex *unstructured.Unstructured) (bool, error) {
	inMain, err := parseRevision(main.GetResourceVersion())
	if err != nil {
		return false, err
	}
	inAnnex, err := parseRevision(annex.GetResourceVersion())
	return inMain > inAnnex, err
}

// makeNewer writes an object twice, and leaves it as it was with another resource version.
func (s *Syncer) makeNewer(ctx context.Context, annex, main *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	revision, err := parseRevision(annex.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	if err := s.copy.raiseFor(ctx, revision); err != nil {
		return nil, err
	}
	touched, err := forMain(annex, main, s.pairs.inMain)
	if err != nil {
		return nil, err
	}
	annotate(touched, touchedAnnotation, annex.GetResourceVersion())
	if main, err = s.mainObjects(annex.GetNamespace()).Update(ctx, touched, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("raise its resource version: %w", err)
	}
	return s.put(ctx, annex, main)
}

// raiseFor raises the main cluster's revision above one, unless it is known to be.
func (c *Copy) raiseFor(ctx context.Context, revision int64) error {
	c.raising.Lock()
	defer c.raising.Unlock()
	if revision < c.above {
		return nil
	}
	raised, err := c.RaiseRevision(ctx, revision+raiseStep)
	if err == nil {
		c.above = raised
	}
	return err
}
