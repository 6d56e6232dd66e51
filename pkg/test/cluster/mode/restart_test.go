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

// TestNobodyIsUnknownAtTheStart asks through the main cluster all the time while
// annex starts: it may be down, but it must not take a login for a wrong one.
func TestNobodyIsUnknownAtTheStart(t *testing.T) {
	cluster := ownCluster(t)
	annex := annextest.Start(t, cluster)
	_, port, err := net.SplitHostPort(annex.Address())
	expect.NoError(t, err)
	mainStores := kube(t, cluster.Config).CoreV1().RESTClient()
	ask := func(ctx context.Context) error {
		return mainStores.Get().AbsPath("/apis/hosting.annex.dev/v1alpha1/stores").MaxRetries(0).Do(ctx).Error()
	}
	for range 3 {
		expect.NoError(t, annex.Shutdown())
		// The port is that of before, and connections come before annex is ready.
		annex.Balancer.Add(annex.Address())
		ctx, stop := context.WithCancel(t.Context())
		answers := make(chan map[string]int)
		go func() {
			counts := map[string]int{}
			for ctx.Err() == nil {
				if err := ask(ctx); ctx.Err() == nil {
					counts[string(apierrors.ReasonForError(err))]++
				}
			}
			answers <- counts
		}()
		if annex, err = annex.Launch(annex.DataDir, "--secure-port="+port); err != nil {
			stop()
			t.Fatal(err)
		}
		stopLater := annex
		t.Cleanup(func() { stopLater.Stop(t) })
		poll.UntilDone(t, "an answer after the start", func() (bool, string) {
			err := ask(t.Context())
			return err == nil, string(apierrors.ReasonForError(err))
		})
		stop()
		if counts := <-answers; counts["Unauthorized"] > 0 || counts["Forbidden"] > 0 {
			t.Errorf("while annex started it answered %v", counts)
		}
	}
}
