// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/annex-dev/annex/pkg/test/process"
)

// serverTimeout bounds the start and the stop of a server.
const serverTimeout = time.Minute

func runStandalone(ctx context.Context, dir string) (outcomes []outcome, err error) {
	binary, err := process.Bin(ctx, "annex")
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("", "annex-upstream-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(data)
	annex, err := process.Start(binary, data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopAnnex(annex, dir)) }()
	starting, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	if err := annex.WaitReady(starting); err != nil {
		return nil, err
	}
	return runEndToEnd(ctx, dir, annex.Kubeconfig, standaloneExceptions)
}

// stopAnnex stops annex and writes its log.
func stopAnnex(annex *process.Annex, dir string) error {
	return errors.Join(annex.Stop(serverTimeout), os.WriteFile(filepath.Join(dir, "annex.log"), []byte(annex.Stderr()), 0o600))
}
