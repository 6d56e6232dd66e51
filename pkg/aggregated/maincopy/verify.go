// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// maxDiffering is how many keys Verify returns at most.
	maxDiffering = 1000

	// maxLag is how long an object may differ because annex is being written.
	maxLag = 10 * time.Second
)

// Verify compares all objects, and returns the keys of those that differ, at most a thousand.
// Objects that differ are compared again for some seconds, because Run may write them: annex's resource
// need not be frozen.
func (s *Syncer) Verify(ctx context.Context) ([]string, error) {
	s.verified.Store(0)
	var differing []key
	annex, main := newPages(s.copy.annex, s.resource.Stored), newPages(s.copy.objects, s.resource.Opened())
	err := eachPair(ctx, annex, main, func(annex, main *unstructured.Unstructured) error {
		s.verified.Add(1)
		same, err := s.same(annex, main)
		if err != nil || same || len(differing) == maxDiffering {
			return err
		}
		if annex == nil {
			annex = main
		}
		differing = append(differing, keyOf(annex))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare %s in annex and in the main cluster: %w", s.resource.Name, err)
	}
	var still []string
	until := time.Now().Add(maxLag)
	for _, k := range differing {
		same, err := s.becomesSame(ctx, k, until)
		if err != nil {
			return nil, fmt.Errorf("compare %s %s in annex and in the main cluster: %w", s.resource.Name, k, err)
		}
		if !same {
			still = append(still, k.String())
		}
	}
	return still, nil
}

// becomesSame compares an object until it is the same, has changed on both sides, or a time has come, at
// least once. What changes on both sides is being copied, perhaps too often to be seen when it is the same;
// Drain waits for its last change.
func (s *Syncer) becomesSame(ctx context.Context, k key, until time.Time) (bool, error) {
	var first *[2]string
	for {
		annex, main, err := s.read(ctx, k)
		if err != nil || annex == nil && main == nil {
			return err == nil, err
		}
		same, err := s.same(annex, main)
		if err != nil || same || time.Now().After(until) {
			return same, err
		}
		now := [2]string{resourceVersionOf(annex), resourceVersionOf(main)}
		if first == nil {
			first = &now
		}
		if now[0] != first[0] && now[1] != first[1] {
			return true, nil
		}
		if !pause(ctx) {
			return false, ctx.Err()
		}
	}
}

// read returns an object of both sides, nil where it is missing.
func (s *Syncer) read(ctx context.Context, k key) (annex, main *unstructured.Unstructured, err error) {
	if main, err = find(ctx, s.mainObjects(k.namespace), k.name); err != nil {
		return nil, nil, err
	}
	annex, err = find(ctx, s.annexObjects(k.namespace), k.name)
	return annex, main, err
}

func resourceVersionOf(object *unstructured.Unstructured) string {
	if object == nil {
		return ""
	}
	return object.GetResourceVersion()
}
