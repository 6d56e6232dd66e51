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
	"strings"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
)

// applyLogs applies upstream's logging flags, once in a process. Without a verbosity
// only errors are logged, and not again and again: upstream's libraries are verbose at level 0. ctx is done when
// annex shuts down.
func applyLogs(ctx context.Context, o options.CompletedOptions) error {
	streams := &logsapi.LoggingOptions{ErrorStream: os.Stderr, InfoStream: os.Stderr}
	if o.Logs.Verbosity == 0 {
		repeats := limitRepeats()
		if o.Logs.Format == logsapi.DefaultLogFormat {
			streams.ErrorStream = errorsOnly{os.Stderr, ctx, repeats}
		}
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
	klog.SetOutput(errorsOnly{errOut, context.Background(), &repeats{}})
}

// errorsOnly passes on error entries and recoveries of klog's text format, whose first byte is the
// severity, except repeats, departures and, after ctx is done, interruptions.
type errorsOnly struct {
	out     io.Writer
	ctx     context.Context
	repeats *repeats
}

// departures are not failures: a shutdown or a closed connection causes them.
// Upstream's informers log a watch that a shutdown interrupted, and its watches an
// event for a client that disconnected.
var departures = [][]byte{[]byte(context.Canceled.Error()), []byte("http2: stream closed")}

// interruptions are failures except during a shutdown, which ends requests of annex's
// own controllers. Upstream logs such a request like one that timed out.
var interruptions = [][]byte{[]byte("http: Handler timeout"), []byte("ost-timeout activity"), []byte("Timeout or abort while handling")}

// recovery is part of the entries about the end of an outage, of which the begin is an error.
var recovery = []byte("is ready again")

// Write drops p unless it is an error or a recovery, and always reports success.
func (w errorsOnly) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0] == 'I' && !bytes.Contains(p, recovery) || p[0] == 'W' || p[0] == 'E' && (w.isExpected(p) || w.isRepeated(string(p)))) {
		return len(p), nil
	}
	return w.out.Write(p)
}

func (w errorsOnly) isExpected(entry []byte) bool {
	contains := func(text []byte) bool { return bytes.Contains(entry, text) }
	return slices.ContainsFunc(departures, contains) || w.ctx.Err() != nil && slices.ContainsFunc(interruptions, contains)
}

// isRepeated reports whether an entry repeats an outage, or an earlier one of upstream's libraries. These may have unquoted
// messages, and annex's have not.
func (w errorsOnly) isRepeated(entry string) bool {
	_, message, _ := strings.Cut(entry, "] ")
	if message == "" || message[0] == '"' {
		return maincluster.RepeatsOutage(entry)
	}
	return w.repeats.isRepeated(message, time.Now())
}
