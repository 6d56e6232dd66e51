// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapiv3 serves the OpenAPI v3 documents of custom resources.
//
// Upstream's controller (k8s.io/apiextensions-apiserver/pkg/controller/openapiv3) builds the
// document of a group version again for each of its definitions, and keeps all of them, encoded
// and not. This package builds the same documents when they are asked for, and keeps a few.
package openapiv3
