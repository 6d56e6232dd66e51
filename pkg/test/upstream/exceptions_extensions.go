// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// extensionsExceptions are the integration tests of apiextensions-apiserver of behaviour
// that is different in annex by design.
var extensionsExceptions = []exception{
	{
		needs:   "an emulated version older than annex allows, to disable features that are always enabled now",
		message: "cannot be emulated, allowed is",
		tests:   []string{`integration/TestFieldSelector(Disablement|DropFields)$`, `integration/TestRatchetingDropFields$`},
	},
	{
		needs:   "a limit of 3 MiB for requests: annex accepts objects of 16 MiB, see docs/limits.md",
		message: "expected too large error",
		tests:   []string{`integration/TestLimits/create_(YAML|JSON)_over_limit$`},
	},
	{
		needs:   "CRDs that are stored as v1beta1: annex stores them as v1, see docs/resources.md",
		message: `APIVersion:"apiextensions.k8s.io/v1"`,
		tests:   []string{`integration/TestEtcdStorage$`},
	},
}
