// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e has Kubernetes' end-to-end tests of api-machinery only. Upstream's program
// waits for Nodes and system Pods, which do not exist here.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/feature"
)

// result implements the part of *testing.T that ginkgo needs.
type result struct{ failed bool }

// Fail records that a test has failed.
func (r *result) Fail() { r.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)

	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	var r result
	ginkgo.RunSpecs(&r, "Kubernetes' end-to-end tests of api-machinery", suite, reporter)
	if r.failed {
		os.Exit(1)
	}
}
