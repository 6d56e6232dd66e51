// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reads serves GET, LIST and WATCH of custom resources from the JSON that watch caches keep: whole, as
// PartialObjectMetadata and as tables. It is in front of upstream's handler of custom resources, which decodes and
// encodes each object of each response, and passes on every request that it cannot answer with the same bytes.
package reads
