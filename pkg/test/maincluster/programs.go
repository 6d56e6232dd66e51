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

// Programs are the paths of the programs of a cluster.
type Programs struct {
	KubeAPIServer         string
	KubeControllerManager string
}

// FindPrograms returns the programs in the directory of MAINCLUSTER_BIN, by default bin/ of the
// Go module of the working directory.
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
	return ProgramsIn(dir)
}

// ProgramsIn returns the programs in a directory.
func ProgramsIn(dir string) (Programs, error) {
	found := Programs{
		KubeAPIServer:         filepath.Join(dir, "kube-apiserver"),
		KubeControllerManager: filepath.Join(dir, "kube-controller-manager"),
	}
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
