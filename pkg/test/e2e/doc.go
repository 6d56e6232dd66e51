// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs bin/annex as a process and uses it through bin/kubectl and client-go, with
// CRDs of other projects.
//
// The tests have the build tag e2e, because they need the two programs:
//
//	make test-e2e
//	go test -tags e2e ./pkg/test/e2e -run TestKubectl   # after `make build kubectl`
package e2e
