// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestDrainingDefaults: the defaults depend on the mode and on replicas, and flags override
// them.
func TestDrainingDefaults(t *testing.T) {
	main, etcd := "--main-kubeconfig=/main", "--etcd-servers=http://127.0.0.1:1"
	tests := map[string]struct {
		flags   []string
		delay   time.Duration
		age     time.Duration
		streams int
	}{
		"standalone":           {nil, 0, 0, 0},
		"standalone, replicas": {[]string{etcd}, 0, 0, 0},
		"aggregated":           {[]string{main}, 0, 0, 1000},
		"aggregated, replicas": {[]string{main, etcd}, 10 * time.Second, 5 * time.Minute, 1000},
		"flags":                {[]string{main, etcd, "--shutdown-delay-duration=3s", "--max-connection-age=1m", "--http2-max-streams-per-connection=50"}, 3 * time.Second, time.Minute, 50},
		"flags with zero":      {[]string{main, etcd, "--shutdown-delay-duration=0s", "--max-connection-age=0s", "--http2-max-streams-per-connection=0"}, 0, 0, 0},
	}
	for name, test := range tests {
		o, err := parse(t, test.flags...)
		expect.NoError(t, err, "%s", name)
		if got := o.Generic.ShutdownDelayDuration; got != test.delay {
			t.Errorf("%s: shutdown delay %s, want %s", name, got, test.delay)
		}
		if got := o.Draining.MaxConnectionAge; got != test.age {
			t.Errorf("%s: connection age %s, want %s", name, got, test.age)
		}
		if got := o.Serving.HTTP2MaxStreamsPerConnection; got != test.streams {
			t.Errorf("%s: %d streams, want %d", name, got, test.streams)
		}
	}
}
