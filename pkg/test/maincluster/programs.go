// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ProgramsVariable is the environment variable with the directory of kube-apiserver and
// kube-controller-manager.
const ProgramsVariable = "MAINCLUSTER_BIN"

// PeerProgramsVariable is the environment variable with the directory of the kube-apiserver that runs as the second
// one and those after it, which may be of another minor version, as during an upgrade. By default all are the same.
const PeerProgramsVariable = "MAINCLUSTER_PEER_BIN"

// Programs are the paths of the programs of a cluster.
type Programs struct {
	KubeAPIServer         string
	KubeControllerManager string
	// PeerAPIServer is the program of the API servers after the first one.
	PeerAPIServer string
}

// FindPrograms returns the programs in the directories of MAINCLUSTER_BIN, by default bin/ of the
// Go module of the working directory, and MAINCLUSTER_PEER_BIN.
func FindPrograms(ctx context.Context) (Programs, error) {
	dir := os.Getenv(ProgramsVariable)
	if dir == "" {
		output, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
		if err != nil {
			return Programs{}, fmt.Errorf("find the module's directory: %w", err)
		}
		module := strings.TrimSpace(string(output))
		if module == "" || module == os.DevNull {
			return Programs{}, fmt.Errorf("the working directory is in no Go module: set %s to the directory that holds kube-apiserver and kube-controller-manager", ProgramsVariable)
		}
		dir = filepath.Join(filepath.Dir(module), "bin")
	}
	found, err := ProgramsIn(dir)
	if peers := os.Getenv(PeerProgramsVariable); err == nil && peers != "" {
		found.PeerAPIServer = filepath.Join(peers, "kube-apiserver")
	}
	return found, err
}

// ProgramsIn returns the programs in a directory.
func ProgramsIn(dir string) (Programs, error) {
	found := Programs{
		KubeAPIServer:         filepath.Join(dir, "kube-apiserver"),
		KubeControllerManager: filepath.Join(dir, "kube-controller-manager"),
	}
	found.PeerAPIServer = found.KubeAPIServer
	for _, path := range []string{found.KubeAPIServer, found.KubeControllerManager} {
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return Programs{}, fmt.Errorf("%s is missing: run `make bin/kube-apiserver bin/kube-controller-manager` (3 to 8 minutes the first time), "+
				"or set %s to a directory that holds both", path, ProgramsVariable)
		}
		if err != nil {
			return Programs{}, fmt.Errorf("find the programs of the main cluster: %w", err)
		}
	}
	return found, nil
}
