// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/cmd/server/options"
)

// applyLogs applies upstream's logging flags, once in a process. Without a verbosity
// only errors are logged: upstream's libraries are verbose at level 0.
func applyLogs(o options.CompletedOptions) error {
	streams := &logsapi.LoggingOptions{ErrorStream: os.Stderr, InfoStream: os.Stderr}
	if o.Logs.Verbosity == 0 && o.Logs.Format == logsapi.DefaultLogFormat {
		streams.ErrorStream = errorsOnly{os.Stderr}
	}
	if err := logsapi.ValidateAndApplyWithOptions(o.Logs, streams, utilfeature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("apply the logging flags: %w", err)
	}
	return nil
}

// quietUntilApplied hides what upstream logs while flags are completed, so that an
// error about them is the only line.
func quietUntilApplied(errOut io.Writer) {
	klog.LogToStderr(false)
	klog.SetOutput(errorsOnly{errOut})
}

// errorsOnly passes on error entries of klog's text format, whose first byte is the
// severity, except those in departures.
type errorsOnly struct{ out io.Writer }

// departures are not failures: a shutdown or a closed connection causes them.
// Upstream's informers log a watch that a shutdown interrupted, and its watches an
// event for a client that disconnected.
var departures = [][]byte{[]byte(context.Canceled.Error()), []byte("http2: stream closed")}

// Write drops p unless it is an error, and always reports success.
func (w errorsOnly) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0] == 'I' || p[0] == 'W' || p[0] == 'E' && isDeparture(p)) {
		return len(p), nil
	}
	return w.out.Write(p)
}

func isDeparture(entry []byte) bool {
	return slices.ContainsFunc(departures, func(text []byte) bool { return bytes.Contains(entry, text) })
}
