// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
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
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	err := annex.Signal(syscall.SIGTERM)
	code, waitErr := annex.Wait(ctx)
	if waitErr != nil {
		annex.Kill()
	} else if code != 0 {
		waitErr = fmt.Errorf("annex ended with code %d", code)
	}
	return errors.Join(err, waitErr, os.WriteFile(filepath.Join(dir, "annex.log"), []byte(annex.Stderr()), 0o600))
}
