// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// versions matches Semantic Versioning without build metadata, which tags of images cannot have.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

type platform struct{ os, architecture string }

// platforms gets an archive each. Windows has the commands for a cluster, without annex serve.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// binary is the program annex for a platform.
type binary struct {
	platform
	path string
}

// program is the file name of annex.
func (p platform) program() string {
	if p.os == "windows" {
		return "annex.exe"
	}
	return "annex"
}

func (r *release) build(ctx context.Context, platforms []platform, scratch string) ([]binary, error) {
	var binaries []binary
	for _, p := range platforms {
		fmt.Printf("building annex for %s/%s\n", p.os, p.architecture)
		b := binary{p, filepath.Join(scratch, p.os+"-"+p.architecture, p.program())}
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", r.ldflags, "-o", b.path, ".")
		command.Dir = r.source
		// Static, because there is no C library in the image.
		command.Env = append(slices.Clip(os.Environ()), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.architecture, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0")
		command.Stdout, command.Stderr = os.Stderr, os.Stderr
		if err := command.Run(); err != nil {
			return nil, fmt.Errorf("build annex for %s/%s: %w", p.os, p.architecture, err)
		}
		binaries = append(binaries, b)
	}
	return binaries, nil
}
