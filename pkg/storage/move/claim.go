// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
)

// Claim closes the target, as Copy does. After that nothing is written to it until it is open, or the
// move is canceled.
func (i *Importer) Claim(ctx context.Context) error {
	arrival, err := i.checkArrival(ctx)
	if err != nil {
		return err
	}
	now, err := i.from.Revision(ctx)
	if err != nil {
		return err
	}
	if err := i.claim(ctx, arrival, now); err != nil {
		return err
	}
	claimed, err := i.to.read(ctx)
	if err == nil && claimed.UID != i.uid {
		err = fmt.Errorf("claim %s: it was written to or claimed meanwhile", i.resource)
	}
	return err
}

// Open opens a target that has all changes of the source, with resource versions above a revision. An
// earlier Follow ended after all resources of a group had every change and one of them was open.
func (i *Importer) Open(ctx context.Context, lowest int64) error {
	t, err := i.takeOver(ctx, lowest)
	if err != nil || t.record.Phase != "" {
		return err
	}
	if !t.record.Copied {
		return ErrNotCopied
	}
	return t.openAbove(ctx, lowest+importGap)
}
