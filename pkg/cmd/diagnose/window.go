// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

// reading is taken at the begin and at the end of a window.
type reading struct {
	at time.Time
	// version is the resource version of etcd, which every transaction raises by one. It is 0 if nothing may be listed.
	version int64
	objects map[*Resource]int64
	// writes are requests since kube-apiserver started. It is nil without the right to get metrics.
	writes map[schema.GroupResource]int64
}

// read counts the objects of each resource that may be listed.
func (s *survey) read(ctx context.Context) *reading {
	r := &reading{at: time.Now(), objects: map[*Resource]int64{}}
	if measured, err := readMeasurements(ctx, s.lister.client); err == nil {
		r.writes = measured.writes
	}
	for _, g := range s.groups {
		for _, resource := range g.Resources {
			path := g.listPath(resource)
			if path == "" || resource.Forbidden || resource.Objects == nil {
				continue
			}
			// A resource that cannot be read any more has no rate.
			if objects, version, err := s.lister.count(ctx, path); err == nil {
				r.objects[resource] = objects
				if read, err := strconv.ParseInt(version, 10, 64); err == nil {
					r.version = max(r.version, read)
				}
			}
		}
	}
	return r
}

// watch measures rates for the time of a window.
func (s *survey) watch(ctx context.Context, window time.Duration, errOut io.Writer) error {
	before := s.read(ctx)
	bar := output.NewBar(errOut, "Watching")
	defer bar.End()
	for left := window; left > 0; left = window - time.Since(before.at) {
		bar.ShowCount(int64((window - left).Seconds()), int64(window.Seconds()), "seconds")
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch for %s: %w", window, ctx.Err())
		case <-time.After(min(left, time.Second)):
		}
	}
	s.rate(before, s.read(ctx))
	return nil
}

// rate fills in the rates between two readings. A counter that went back is of another kube-apiserver, or of one that was
// restarted.
func (s *survey) rate(before, after *reading) {
	seconds := after.at.Sub(before.at).Seconds()
	s.report.WindowSeconds = seconds
	per := func(before, after int64, unit float64) *float64 { return new(float64(after-before) / seconds * unit) }
	if before.version > 0 && after.version >= before.version {
		s.report.WritesPerSecond = per(before.version, after.version, 1)
	}
	for name, g := range s.groups {
		for _, r := range g.Resources {
			if before.writes != nil && after.writes != nil {
				of := schema.GroupResource{Group: name, Resource: r.Name}
				if after.writes[of] >= before.writes[of] {
					r.WritesPerSecond = per(before.writes[of], after.writes[of], 1)
				}
			}
			first, counted := before.objects[r]
			last, again := after.objects[r]
			if !counted || !again {
				continue
			}
			r.ObjectsPerHour = per(first, last, time.Hour.Seconds())
			if mean := float64(ptr.Deref(r.Bytes, 0)) / float64(max(1, ptr.Deref(r.Objects, 0))); mean > 0 || first == last {
				r.BytesPerHour = new(*r.ObjectsPerHour * mean)
			}
		}
	}
}
