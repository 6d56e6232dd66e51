// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// reconcilePage is the number of objects that Reconcile reads at a time.
const reconcilePage = 500

// Reconcile applies the late changes that no watch has delivered. The source is read once more;
// it has no writers any longer. Like Follow, it returns a *LateError if objects were written here
// meanwhile. It can be repeated.
func (i *Importer) Reconcile(ctx context.Context, from Source) error {
	now, err := from.Revision(ctx)
	if err != nil {
		return err
	}
	t, err := i.takeOver(ctx, now)
	if err != nil {
		return err
	}
	if t.record.Phase != Switched {
		return fmt.Errorf("reconcile %s: the target is not open", i.resource)
	}
	t.source = from
	r := &reconciling{late: newLate(t), applied: t.record.Applied}
	if err := r.all(ctx, now); err != nil {
		return err
	}
	if r.failed.Count == 0 {
		r.record.Applied = max(r.record.Applied, now)
		return r.commit(ctx)
	}
	return r.result()
}

// reconciling is a Reconcile.
type reconciling struct {
	*late
	// applied is the revision of the source up to which the target had all changes.
	applied int64
}

// all compares all objects, page by page.
func (r *reconciling) all(ctx context.Context, revision int64) error {
	after := ""
	for more := true; more; {
		var objects []Object
		var err error
		if objects, more, err = r.source.Page(ctx, after, reconcilePage, revision); err != nil {
			return err
		}
		last := ""
		if more && len(objects) > 0 {
			last = objects[len(objects)-1].Key
		}
		if err := r.page(ctx, objects, after, last); err != nil {
			return err
		}
		after = last
	}
	return nil
}

// page applies what has changed among the objects after a key, until the last one, or until the end if
// that is empty.
func (r *reconciling) page(ctx context.Context, objects []Object, after, last string) error {
	present := make(map[string]bool, len(objects))
	for _, object := range objects {
		present[object.Key] = true
		if object.Revision <= r.applied {
			continue
		}
		if err := r.apply(ctx, Change{Object: object}); err != nil {
			return err
		}
	}
	end := r.to.boundary
	if last != "" {
		end = r.to.behind(last)
	}
	here, err := r.to.KV.Get(ctx, r.to.behind(after), clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithMaxModRev(r.opened))
	if err != nil {
		return fmt.Errorf("read the objects of %s: %w", r.resource, err)
	}
	for _, kv := range here.Kvs {
		if key := string(kv.Key[len(r.to.objects):]); !present[key] {
			if err := r.apply(ctx, Change{Object: Object{Key: key}, Deleted: true}); err != nil {
				return err
			}
		}
	}
	return nil
}
