// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile reloads configuration files of any content while annex serves, loads the
// kubeconfigs of webhooks, and finds the lines of errors in both.
package configfile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
)

// pollInterval is the time between reads of a file without a notification: not every file system
// sends them, and a mounted ConfigMap changes behind a symlink.
const pollInterval = 10 * time.Second

// File is a configuration file that can change while annex serves.
type File struct {
	Path string
	// Loaded is the content in use.
	Loaded []byte
	// Apply uses other content. If it fails, it has changed nothing.
	Apply func(ctx context.Context, data []byte) error
	// Record, if set, is called for every change, for metrics: err is nil if the file can be
	// used, and data is empty if it cannot be read.
	Record func(data []byte, err error)

	// PollInterval replaces the default interval, in tests.
	PollInterval time.Duration
}

// Watch reloads a file until ctx is done. While the file cannot be read or applied, the
// previous content stays in use; the failure is logged and recorded once, and retried
// whenever the file is read.
func Watch(ctx context.Context, file File) {
	if file.PollInterval == 0 {
		file.PollInterval = pollInterval
	}
	w := &watcher{File: file, seen: file.Loaded}
	logger := klog.FromContext(ctx)
	filesystem.WatchUntil(ctx, file.PollInterval, file.Path,
		func() { w.check(ctx) },
		func(err error) {
			// The file is polled anyway, which reports that it cannot be read.
			logger.V(2).Info("A configuration file cannot be watched for now, it is only polled", "file", file.Path, "err", err)
		})
}

// watcher is the state of Watch.
type watcher struct {
	File

	// seen is the content that was last read, in use or not.
	seen []byte
	// failure is the last reported reason why the file cannot be used.
	failure string
}

// check reads the file and applies it if it changed or could not be applied before: files
// that it names may exist now.
func (w *watcher) check(ctx context.Context) {
	data, err := os.ReadFile(w.Path)
	if err != nil {
		err = fmt.Errorf("read a configuration file: %w", err)
		w.note(ctx, nil, err)
		return
	}
	changed := !bytes.Equal(data, w.seen)
	if !changed && w.failure == "" {
		return
	}
	err = w.Apply(ctx, data)
	if changed || err == nil {
		w.failure = ""
	}
	w.seen = data
	w.note(ctx, data, err)
}

// note logs and records the result of a change, failures only once.
func (w *watcher) note(ctx context.Context, data []byte, err error) {
	logger := klog.FromContext(ctx)
	if err == nil {
		logger.Info("Applied a changed configuration file", "file", w.Path)
	} else {
		if err.Error() == w.failure {
			return
		}
		w.failure = err.Error()
		logger.Error(err, "A changed configuration file cannot be used, what was in force before stays so", "file", w.Path)
	}
	if w.Record != nil {
		w.Record(data, err)
	}
}
