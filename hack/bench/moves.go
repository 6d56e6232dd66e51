// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/annex-dev/annex/pkg/test/maincluster"
)

const movedBytes = 2300

// measureMoves moves a group from a main cluster into annex and back, by the commands for that.
func measureMoves(ctx context.Context, s *session) error {
	annex, main, err := s.startAggregated(ctx)
	if err != nil {
		return err
	}
	if err := main.serve(ctx, natives); err != nil {
		return err
	}
	logf("creating %d objects ...", s.moved)
	_, err = countUp(creators, 0, s.moved, func(i int) (response, error) { return main.create(ctx, natives, i, movedBytes) })
	if err != nil {
		return err
	}
	if err := s.addMove(ctx, annex.Cluster, "move"); err != nil {
		return err
	}
	return s.addMove(ctx, annex.Cluster, "rollback")
}

// addMove measures a command that moves the group.
func (s *session) addMove(ctx context.Context, cluster *maincluster.Cluster, verb string) error {
	logf("measuring %s ...", verb)
	command := exec.CommandContext(ctx, s.program(annexName), verb, natives.group, "--yes")
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	began := time.Now()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %d objects: %w\n%s", verb, s.moved, err, output)
	}
	s.add(fmt.Sprintf("%s of %d objects of %d bytes", verb, s.moved, movedBytes), "s", time.Since(began).Seconds(), 0)
	return nil
}
