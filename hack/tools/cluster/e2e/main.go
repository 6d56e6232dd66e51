// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e is Kubernetes' end-to-end tests of api-machinery, and of nothing else.
// Upstream's own program has the tests of every area, and waits for Nodes and system
// Pods before the first one; here there are none.
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

// result has what ginkgo wants of a *testing.T.
type result struct{ failed bool }

// Fail is called when a test has failed.
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
