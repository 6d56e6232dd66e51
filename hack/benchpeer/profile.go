// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// profileSeconds is the duration of a CPU profile.
const profileSeconds = 6

// profile repeats an operation on each server, and writes CPU profiles of the servers to a
// directory.
func (o operation) profile(ctx context.Context, directory string, servers []*server) error {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, o.name)
	for _, s := range servers {
		path := filepath.Join(directory, name+"."+s.name+".pprof")
		if err := o.profileOf(ctx, s, path); err != nil {
			return fmt.Errorf("profile %s of %s: %w", o.name, s.name, err)
		}
	}
	return nil
}

// profile writes a CPU profile of the server to a file.
func (s *server) profile(ctx context.Context, path string) error {
	received, err := s.client.send(ctx, request{path: fmt.Sprint("/debug/pprof/profile?seconds=", profileSeconds), keep: true})
	if err != nil {
		return fmt.Errorf("profile %s: %w", s.name, err)
	}
	return os.WriteFile(path, received.body, 0o600)
}

// profileOf repeats an operation until the CPU profile is taken.
func (o operation) profileOf(ctx context.Context, s *server, path string) error {
	prepared, err := o.prepare(ctx, s)
	if err != nil {
		return err
	}
	if prepared.close != nil {
		defer prepared.close()
	}
	taken := make(chan error, 1)
	go func() { taken <- s.profile(ctx, path) }()
	for {
		_, _, err := prepared.run(ctx)
		select {
		case failed := <-taken:
			return errors.Join(err, failed)
		default:
		}
		if err != nil {
			return errors.Join(err, <-taken)
		}
	}
}

// moreCreation returns the operation that creates further objects in each round.
func moreCreation(count, size int) operation {
	const each = 200
	return operation{name: "create", prepare: func(_ context.Context, s *server) (round, error) {
		next := count
		return round{run: func(ctx context.Context) (int64, int64, error) {
			next += each
			return create(s, workers, next-each, next, size, nil).run(ctx)
		}}, nil
	}}
}
