// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/annex-dev/annex/pkg/storage/archive"
)

const (
	// archiveObjects and archiveBytes bound what is archived at once, before it is deleted.
	archiveObjects = 100
	archiveBytes   = 8 << 20
)

// Archive keeps objects. A *archive.Archive is one.
type Archive interface {
	// Write stores records of a resource durably.
	Write(resource string, records []archive.Record) error
}

// deleteSome deletes objects of the plan for a while.
func (c *Controller) deleteSome(ctx context.Context, w *work, retention *retentionSpec) {
	if retention.Archive && c.config.Archive == nil {
		c.setSucceeded(w, false, reasonArchiveNotConfigured, "Nothing is deleted, because the server has no --archive-dir")
		w.plan = nil
		return
	}
	for end := c.now().Add(turn); w.position < len(w.plan.targets) && c.now().Before(end); {
		if !c.mayDelete(w) || c.now().Sub(w.lastRun) > maxPlanAge+w.took {
			w.drop()
			return
		}
		next := w.plan.targets[w.position : w.position+1]
		if retention.Archive {
			archived, err := c.archive(ctx, w)
			if err != nil {
				c.fail(ctx, w, "archive", reasonArchiveFailed, fmt.Errorf("nothing is deleted: %w", err))
				return
			}
			next = archived
		} else {
			w.position++
		}
		for _, t := range next {
			if err := c.delete(ctx, w, t, retention.DeletionsPerSecond); err != nil {
				c.fail(ctx, w, "delete", reasonDeletionFailed, err)
				return
			}
		}
	}
	c.endPlan(w)
}

// delete deletes an object, and rests. It returns an error if other deletions would fail too.
func (c *Controller) delete(ctx context.Context, w *work, t *target, perSecond int32) error {
	if !c.mayDelete(w) {
		return errInterrupted
	}
	started := c.now()
	err := c.config.AnnexObjects.Delete(ctx, w.resource, t.NamespacedName, t.uid, t.resourceVersion)
	took := c.now().Sub(started)
	if isUnavailable(err) {
		return err
	}
	w.count(t, err)
	if !c.rest(max(w.deletions.rest(took), time.Second/time.Duration(max(perSecond, 1))-took)) {
		return errInterrupted
	}
	return nil
}

// archive archives the next objects of the plan. It returns those that have not changed.
func (c *Controller) archive(ctx context.Context, w *work) (archived []*target, err error) {
	var records []archive.Record
	for size := 0; w.position < len(w.plan.targets) && len(records) < archiveObjects && size < archiveBytes; w.position++ {
		t := w.plan.targets[w.position]
		started := c.now()
		data, err := c.config.AnnexObjects.Get(ctx, w.resource, t.NamespacedName)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var read object
		if err := json.Unmarshal(data, &struct {
			Metadata any `json:"metadata"`
		}{&read.ObjectMeta}); err != nil {
			return nil, fmt.Errorf("decode %s %s: %w", w.name, t.NamespacedName, err)
		}
		if read.UID != t.uid || read.ResourceVersion != t.resourceVersion {
			w.result.changed++
			continue
		}
		records = append(records, archive.Record{Archived: c.now().UTC(), Resource: w.name, Rule: w.rules[t.rule()].name, Object: data})
		archived = append(archived, t)
		size += len(data)
		if !c.rest(w.reads.rest(c.now().Sub(started))) {
			return nil, errInterrupted
		}
	}
	if len(records) == 0 {
		return nil, nil
	}
	if err := c.config.Archive.Write(w.name, records); err != nil {
		return nil, fmt.Errorf("archive %s of %s: %w", objects(int64(len(records))), w.name, err)
	}
	w.status.Archived += int64(len(records))
	archivedTotal.WithLabelValues(w.name).Add(float64(len(records)))
	return archived, nil
}

// count counts the result of a deletion.
func (w *work) count(t *target, err error) {
	switch {
	case err == nil:
		w.deleted(t)
	case apierrors.IsNotFound(err):
		// It is gone, or another object has its name.
	case apierrors.IsConflict(err):
		w.result.changed++
	default:
		failuresTotal.WithLabelValues(w.name, "delete").Inc()
		if w.result.failed++; w.result.failed == 1 {
			w.result.failure = err.Error()
		}
	}
}

// isUnavailable reports whether other deletions would fail too.
func isUnavailable(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}
