// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// standaloneExceptions are the end-to-end tests that need kinds that a standalone annex
// does not serve. Most of them are run, and must fail for that reason.
var standaloneExceptions = []exception{
	{
		needs:   "Pods",
		message: notServed,
		tests: []string{
			`Generated clientset should create pods`,
			`Namespaces .* all pods are removed`,
			`OrderedNamespaceDeletion `,
			`ResourceQuota should create a ResourceQuota and capture the life of a pod`,
			`ResourceQuota should verify ResourceQuota with (best effort|terminating) scope`,
			`ResourceQuota should verify ResourceQuota with cross namespace pod affinity scope`,
			`ServerSideApply should (create an applied object if|work for subresources)`,
			`Servers with support for Table transformation should return pod details`,
		},
	},
	{
		needs:   "PriorityClasses, for Pods",
		message: notServed,
		tests:   []string{`ResourceQuota \[Feature:PodPriority\] `},
	},
	{
		needs:   "Nodes",
		message: notServed,
		tests: []string{
			`Garbage collector should (orphan pods created by rc if delete options [a-z]+ so|keep the rc around until|not delete dependents that have both)`,
			`Servers with support for Table transformation should return generic metadata details across all namespaces for nodes`,
		},
	},
	{
		needs:   "a Deployment that runs a webhook",
		message: notServed,
		tests:   []string{`AdmissionWebhook `, `CustomResourceConversionWebhook `, `CustomResourceFieldSelectors `},
	},
	{
		needs:   "a Deployment that runs another API server",
		message: notServed,
		tests:   []string{`Aggregator `, `CBOR .* sample-apiserver`, `OpenAPIV3 should contain OpenAPI V3 for Aggregated APIServer`},
	},
	{
		needs:   "Deployments",
		message: notServed,
		tests: []string{
			`FieldValidation should detect unknown (and duplicate fields|metadata fields) of a typed object`,
			`Garbage collector should .* RS created by deployment`,
			`MutatingAdmissionPolicy .* should mutate a Deployment`,
			`ServerSideApply should (give up ownership|ignore conflict errors|not remove a field|remove a field)`,
			`ValidatingAdmissionPolicy .* should (allow expressions to refer variables|validate against a Deployment)`,
		},
	},
	{
		needs:   "Deployments",
		message: "deployments",
		tests: []string{
			`AggregatedDiscovery should support (aggregated discovery interface|raw aggregated discovery endpoint Accept headers) \[`,
			`Discovery should accurately determine present and missing resources`,
		},
	},
	{
		needs:   "the schema of Deployments, to check expressions of a policy against",
		message: "to have length 2",
		tests:   []string{`ValidatingAdmissionPolicy .* should type check validation expressions`},
	},
	{
		needs:   "the group apps, and others of workloads",
		message: notServed,
		tests:   []string{`Discovery should locate the groupVersion and a resource within each APIGroup`},
	},
	{
		needs:   "ReplicationControllers or ReplicaSets",
		message: notServed,
		tests: []string{
			`Garbage collector should (delete pods created by rc|not be blocked by dependency circle|orphan pods created by rc if deleteOptions)`,
			`ResourceQuota should create a ResourceQuota and capture the life of a repli`,
		},
	},
	{
		needs:   "CronJobs",
		message: notServed,
		tests:   []string{`Garbage collector should delete jobs and pods created by cronjob`, `Generated clientset should create v1 cronJobs`},
	},
	{
		needs:   "Services",
		message: notServed,
		tests:   []string{`Namespaces .* all services are removed`, `ResourceQuota should create a ResourceQuota and capture the life of a service`},
	},
	{
		needs:   "StorageVersions, an alpha API",
		message: notServed,
		tests:   []string{`StorageVersion resources `, `StorageVersionMigration CRUD Tests `},
	},
	{
		needs:   "post-start hooks that only kube-apiserver has",
		message: "missing required /healthz?verbose=1 checks",
		tests:   []string{`health handlers `},
	},
	{
		needs:      "PodTemplates",
		skipReason: "the test panics if it cannot create them",
		tests:      []string{`Servers with support for API chunking `, `Servers with support for Table transformation should return chunks of table results`},
	},
	{
		needs:      "PersistentVolumeClaims or ResourceClaims",
		skipReason: "it waits five minutes for their quota",
		tests:      []string{`ResourceQuota .* capture the life of a (persistent volume claim|ResourceClaim)`, `ResourceQuota .*volume attributes class`},
	},
	{
		needs:      "LeaseCandidates, a beta API that is off by default in Kubernetes too",
		skipReason: "it waits half a minute for them",
		tests:      []string{`CoordinatedLeaderElection `},
	},
	flaky,
}

// flaky is a test that reads a new CRD by its short name, which may not be in discovery yet.
var flaky = exception{
	needs:      "a fix in Kubernetes, where it is marked as flaky",
	skipReason: "the jobs of Kubernetes skip it too",
	tests:      []string{`CustomResourcePublishOpenAPI .*\[Flaky\]`},
}
