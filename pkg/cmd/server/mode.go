// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/leader"
)

// mode is everything that differs between a standalone annex and one behind a main
// cluster. newMode decides which of the two annex is; nothing below it decides that again.
type mode interface {
	// prepareServing completes the serving options with the certificate that clients
	// verify. It is called after annex's own certificates exist.
	prepareServing(context.Context, options.CompletedOptions, *identity) error
	// adminServerName is the server name in admin.kubeconfig, or empty if the
	// administrator verifies the same certificate as other clients.
	adminServerName(options.CompletedOptions) string
	// kubernetes returns the cluster that serves the Kubernetes kinds.
	kubernetes(*clients) *kubernetesCluster
	// applyTo configures authentication and authorization, what the chain serves, and
	// what differs in admission.
	applyTo(context.Context, options.CompletedOptions, *apiserver.Config, *kubernetesCluster, *identity) error
	// controllers configures the controllers of the mode.
	controllers(options.CompletedOptions, *apiserver.Config, *apiserver.Chain) controller.Mode
	// election configures the leader election of the controllers. It returns false if
	// there cannot be another replica.
	election(options.CompletedOptions, controller.Config, *storage) (leader.Config, bool)
	// run does the mode's own work until ctx is done.
	run(ctx context.Context)
}

// newMode decides in which mode annex runs. Behind a main cluster it waits until that
// responds.
func newMode(ctx context.Context, o options.CompletedOptions) (mode, error) {
	if o.Main.Enabled() {
		return newAggregated(ctx, o.Main)
	}
	return &standalone{}, nil
}
