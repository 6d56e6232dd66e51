// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// hostedExceptions are the end-to-end tests that cannot pass in a main cluster without
// Nodes. Tests that use only custom resources are not among them.
var hostedExceptions = []exception{
	{
		needs:      "a webhook in a running Pod, for which there is no Node",
		skipReason: "it waits five minutes for the Deployment",
		tests:      []string{`AdmissionWebhook `, `CustomResourceConversionWebhook `, `CustomResourceFieldSelectors `},
	},
	{
		needs:      "another API server in a running Pod, for which there is no Node",
		skipReason: "it waits five minutes for the Deployment",
		tests:      []string{`Aggregator `, `CBOR .* sample-apiserver`, `OpenAPIV3 should contain OpenAPI V3 for Aggregated APIServer`},
	},
	{
		needs:      "a running Pod, for which there is no Node",
		skipReason: "it waits five minutes for it",
		tests:      []string{`Namespaces .* all pods are removed`, `OrderedNamespaceDeletion `, `Generated clientset should create pods`},
	},
	{
		needs:   "Nodes",
		message: "there are currently no ready, schedulable nodes",
		tests:   []string{`Garbage collector should (orphan pods created by rc if delete options [a-z]+ so|keep the rc around until|not delete dependents that have both)`},
	},
	{
		needs:   "Nodes",
		message: "not to be empty",
		tests:   []string{`Servers with support for Table transformation should return generic metadata details across all namespaces for nodes`},
	},
	{
		needs:      "LeaseCandidates, a beta API that is off by default",
		skipReason: "it waits half a minute for them",
		tests:      []string{`CoordinatedLeaderElection `},
	},
	{
		needs:   "StorageVersions, an alpha API that is off by default",
		message: notServed,
		tests:   []string{`StorageVersion resources `},
	},
	flaky,
}
