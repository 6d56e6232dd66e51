// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapiv2 serves the OpenAPI v2 document, which has all resources.
//
// Upstream's controller (k8s.io/apiextensions-apiserver/pkg/controller/openapi) and aggregator
// build it when it is asked for, and keep it decoded four times: per definition, merged, as read
// by the aggregator, and merged again. This package adds the definitions to the document of the
// compiled-in resources, one after the other, and keeps only compressed bytes.
package openapiv2
