// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl is the stock Kubernetes client, built from the module that
// go.mod pins, so that the end-to-end tests need no kubectl on the machine.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		// CheckErr picks the exit code that scripts rely on (diff: 1 for a difference).
		util.CheckErr(err)
		os.Exit(1)
	}
}
