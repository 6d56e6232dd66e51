// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package mode

import (
	"context"
	"net"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestNoUnauthorizedDuringStart sends requests through the main cluster while annex starts: they
// may fail, but not because of the login.
func TestNoUnauthorizedDuringStart(t *testing.T) {
	cluster := ownCluster(t)
	annex := annextest.Start(t, cluster)
	_, port, err := net.SplitHostPort(annex.Address())
	expect.NoError(t, err)
	mainStores := kube(t, cluster.Config).CoreV1().RESTClient()
	request := func(ctx context.Context) error {
		return mainStores.Get().AbsPath("/apis/hosting.annex.dev/v1alpha1/stores").MaxRetries(0).Do(ctx).Error()
	}
	for range 3 {
		expect.NoError(t, annex.Shutdown())
		// annex uses the same port again, and receives connections before it is ready.
		annex.Balancer.Add(annex.Address())
		ctx, stop := context.WithCancel(t.Context())
		responses := make(chan map[string]int)
		go func() {
			counts := map[string]int{}
			for ctx.Err() == nil {
				if err := request(ctx); ctx.Err() == nil {
					counts[string(apierrors.ReasonForError(err))]++
				}
			}
			responses <- counts
		}()
		if annex, err = annex.Launch(annex.DataDir, "--secure-port="+port); err != nil {
			stop()
			t.Fatal(err)
		}
		stopLater := annex
		t.Cleanup(func() { stopLater.Stop(t) })
		poll.UntilDone(t, "a response after the start", func() (bool, string) {
			err := request(t.Context())
			return err == nil, string(apierrors.ReasonForError(err))
		})
		stop()
		if counts := <-responses; counts["Unauthorized"] > 0 || counts["Forbidden"] > 0 {
			t.Errorf("responses while annex started: %v", counts)
		}
	}
}
