// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

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

// pollInterval is how often a file is read without being told that it changed:
// not every file system tells, and a mounted ConfigMap changes behind a symlink.
const pollInterval = 10 * time.Second

// File is a configuration file that can change while annex serves.
type File struct {
	// Path is where the file is.
	Path string
	// Loaded is the content that is in force.
	Loaded []byte
	// Apply puts other content into force. When it fails, it has changed nothing.
	Apply func(ctx context.Context, data []byte) error
	// Record, if set, hears of every change, for metrics: err says why the file
	// could not be used, data is empty if it could not even be read.
	Record func(data []byte, err error)

	// PollInterval replaces how often the file is read without a notice. Tests set it.
	PollInterval time.Duration
}

// Watch follows a file until ctx is done and blocks. What was in force before
// stays so as long as the file cannot be read or applied; that is logged and
// recorded once, and tried again whenever the file is read.
func Watch(ctx context.Context, file File) {
	if file.PollInterval == 0 {
		file.PollInterval = pollInterval
	}
	w := &watcher{File: file, seen: file.Loaded}
	logger := klog.FromContext(ctx)
	filesystem.WatchUntil(ctx, file.PollInterval, file.Path,
		func() { w.check(ctx) },
		func(err error) {
			// The file is polled all the same, and what cannot be read is said there.
			logger.V(2).Info("A configuration file cannot be watched for now, it is only polled", "file", file.Path, "err", err)
		})
}

// watcher is the state of following one file.
type watcher struct {
	File

	// seen is the content that was last read, in force or not.
	seen []byte
	// failure is what was last said about why the file cannot be used.
	failure string
}

// check reads the file and applies it if it changed, or could not be applied before:
// what it names may be there now.
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

// note says what became of a change, failures only once.
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
