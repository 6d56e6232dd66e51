// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		r := &repeats{next: func(_ context.Context, err error, message string, keysAndValues ...any) {
			logged = append(logged, fmt.Sprint(message, err, keysAndValues))
		}}
		refused := func(n int, of string) {
			err := fmt.Errorf(`Get "https://main/api/v1/services?timeout=%ds&watch=true": read tcp 10.0.0.1:%d->10.0.0.2:443: connection reset`, n, n)
			r.handle(t.Context(), err, "Failed to watch", "type", of)
		}
		for i := range 100 {
			refused(i, "Service")
			refused(5, "Namespace")
			r.handle(t.Context(), fmt.Errorf("failed to list *v1.Type%d: the server is currently unable to handle the request (get types%d)", i, i), "Failed to watch")
			r.handle(t.Context(), nil, "Timeout or abort while handling", "URI", "/metrics", "auditID", fmt.Sprint(i), "timeElapsed", time.Duration(i))
			time.Sleep(repeatInterval / 60)
		}
		expect.Equal(t, 8, len(logged), "entries of four errors for more than one interval")
		for i := range 2 * maxRepeats {
			r.handle(t.Context(), errors.New("x"), fmt.Sprint(i))
		}
		if len(r.logged) > maxRepeats {
			t.Errorf("%d errors are remembered", len(r.logged))
		}
	})
}

// TestRepeatsNameTheCaller is not parallel, because the handlers are of the process.
func TestRepeatsNameTheCaller(t *testing.T) {
	before := utilruntime.ErrorHandlers[0]
	defer func() { utilruntime.ErrorHandlers[0] = before }()
	limitRepeats()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	utilruntime.HandleErrorWithContext(ctx, errors.New("refused"), "Failed")
	expect.Contains(t, log.String(), "repeats_test.go:", "refused")
}
