// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build release

package release

import (
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/docs"
)

// TestRelease makes a release, installs its plugin with krew, makes it again in another folder, and runs its program as the
// image does.
func TestRelease(t *testing.T) {
	reader := docs.NewReader(t)
	reader.Timeout = 2 * time.Hour
	reader.Clones(t)
	reader.Type(t, "git clone https://github.com/annex-dev/annex && cd annex")
	reader.Read(t, docs.MakeRelease.Text(t))
	reader.Type(t, "mkdir ~/release && cp dist/* ~/release && cd ~/release")
	reader.Read(t, docs.CheckDownload.Text(t))
	reader.Type(t, "krew install --manifest=annex.yaml --archive=annex_v0.1.0_linux_$(go env GOARCH).tar.gz")
	reader.Type(t, "~/.krew/bin/kubectl-annex --version | grep '^annex v0.1.0 '")
	reader.Type(t, "git clone ~/annex && cd annex")
	reader.Read(t, docs.ReproduceBuild.Text(t))
	reader.Type(t, "mkdir ../program && tar -xzf ../annex_v0.1.0_linux_$(go env GOARCH).tar.gz -C ../program")
	reader.Type(t, "hack/verify-image.sh ../program/annex")
}
