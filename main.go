// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Annex is an API server for custom resources.
package main

import (
	"os"

	"github.com/annex-dev/annex/pkg/cmd"
)

func main() {
	os.Exit(cmd.Execute(os.Args[1:], os.Stdout, os.Stderr))
}
