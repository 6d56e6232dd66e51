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
		needs:   "400 for bodies that are nested deeply: annex answers 413 before it decodes them, see docs/limits.md",
		message: "413",
		tests: []string{
			`integration/TestLimits/create_JSON_doc_under_limit,_(not_)?nested$`, `integration/TestLimits/create_YAML_doc_under_limit,_not_nested$`,
		},
	},
	{
		needs:   "400 for patches that are nested deeply, as above",
		message: "nested too deep",
		tests:   []string{`integration/TestLimits/(Merge|Apply)PatchType_nested_patch_under_limit$`},
	},
	{
		needs:   "CRDs that are stored as v1beta1: annex stores them as v1, see docs/resources.md",
		message: `APIVersion:"apiextensions.k8s.io/v1"`,
		tests:   []string{`integration/TestEtcdStorage$`},
	},
}
