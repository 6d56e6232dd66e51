// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// etcd logs ordinary events at levels that are too high for an embedded one, so each of its
// levels needs a higher verbosity than its name suggests.
const (
	warnVerbosity  = 2
	infoVerbosity  = 4
	debugVerbosity = 8
)

// noise has the messages that etcd logs as errors although it retries at once.
var noise = map[string]bool{
	// The first write of a fresh member has not been applied yet; tried again.
	"failed to update storage version": true,
}

// newZapLogger writes etcd's log through klog. Where etcd would end the process, it calls fail,
// and then only the goroutine that logged ends: it can no longer acknowledge anything, and the
// process can report the error in one line and shut down in order.
func newZapLogger(log klog.Logger, closing *atomic.Bool, fail func(error)) *zap.Logger {
	hook := failHook{fail: fail}
	return zap.New(&klogCore{log: log, closing: closing}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

type failHook struct{ fail func(error) }

// OnWrite implements zapcore.CheckWriteHook.
func (h failHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	h.fail(entryError(entry.Message, fields))
	runtime.Goexit()
}

func entryError(message string, fields []zapcore.Field) error {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return fmt.Errorf("%s: %w", message, err)
		}
	}
	return errors.New(message)
}

// klogCore is a zapcore.Core over a klog logger.
type klogCore struct {
	log     klog.Logger
	closing *atomic.Bool
	fields  []zapcore.Field
}

// Enabled implements zapcore.LevelEnabler.
func (c *klogCore) Enabled(level zapcore.Level) bool {
	v := c.verbosity(level)
	return v == 0 || c.log.V(v).Enabled()
}

// verbosity is 0 for what is always logged. Closing listeners makes etcd log
// errors about the closed listeners, and closing the process is all that fatal
// entries would report.
func (c *klogCore) verbosity(level zapcore.Level) int {
	switch {
	case level >= zapcore.DPanicLevel:
		return 0
	case level >= zapcore.ErrorLevel && !c.closing.Load():
		return 0
	case level >= zapcore.WarnLevel:
		return warnVerbosity
	case level >= zapcore.InfoLevel:
		return infoVerbosity
	default:
		return debugVerbosity
	}
}

// With implements zapcore.Core.
func (c *klogCore) With(fields []zapcore.Field) zapcore.Core {
	return &klogCore{log: c.log, closing: c.closing, fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c *klogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *klogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	// Fatal errors are reported by Err or Start.
	if entry.Level >= zapcore.DPanicLevel {
		return nil
	}
	values := zapcore.NewMapObjectEncoder()
	keysAndValues := make([]any, 0, 2*(len(c.fields)+len(fields)))
	for _, group := range [][]zapcore.Field{c.fields, fields} {
		for _, field := range group {
			field.AddTo(values)
			if value, ok := values.Fields[field.Key]; ok {
				keysAndValues = append(keysAndValues, field.Key, value)
			}
		}
	}
	v := c.verbosity(entry.Level)
	if noise[entry.Message] {
		v = max(v, warnVerbosity)
	}
	if v > 0 {
		c.log.V(v).Info(entry.Message, keysAndValues...)
	} else {
		c.log.Error(nil, entry.Message, keysAndValues...)
	}
	return nil
}

// Sync implements zapcore.Core; klog flushes by itself.
func (c *klogCore) Sync() error { return nil }
