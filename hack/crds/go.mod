// The CRDs that the end-to-end tests serve, written by other projects. They are read
// from these modules (package pkg/test/crds) and never copied into this repository.
//
// Nothing here is compiled, so only these modules themselves are in go.sum and
// none of what they depend on. Do not run `go mod tidy`: it would empty this file.
// To move to another version, edit it here and run, in this directory,
//
//	GOTOOLCHAIN=local go mod download -json <module>@<version>
module github.com/annex-dev/annex/hack/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/fluxcd/helm-controller v1.6.0
	github.com/fluxcd/kustomize-controller v1.9.0
	github.com/fluxcd/source-controller v1.9.0
	github.com/kyverno/kyverno v1.19.1
	github.com/openreports/reports-api v0.2.1
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.7.0
)
