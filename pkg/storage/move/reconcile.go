// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"context"
	"fmt"
)

// Reconcile applies the late changes that no watch has delivered. The source is read once more;
// it has no writers any longer. Like Follow, it returns a *LateError if objects were written here
// meanwhile. It can be repeated.
func (i *Importer) Reconcile(ctx context.Context, from Source) error {
	t, err := i.begin(ctx, from)
	if err != nil {
		return err
	}
	if t.record.Phase != Switched {
		return fmt.Errorf("reconcile %s: the target is not open", i.resource)
	}
	l, applied := newLate(t), t.record.Applied
	both := sides{source: from, target: i.to}
	err = eachPage(func(cursor string, limit int64) (pair, error) {
		p, err := both.page(ctx, cursor, limit, l.began, 0)
		if err != nil {
			return pair{}, err
		}
		return p, p.each(func(key string, from, to *Object) error {
			switch {
			case from != nil && from.Revision > applied:
				return l.apply(ctx, Change{Object: *from})
			case from == nil && to.Revision <= l.opened:
				return l.apply(ctx, Change{Object: Object{Key: key}, Deleted: true})
			}
			return nil
		})
	})
	if err != nil || l.failed.Count > 0 {
		return cmp.Or(err, l.result())
	}
	l.record.Applied = max(l.record.Applied, l.began)
	return l.commit(ctx)
}
