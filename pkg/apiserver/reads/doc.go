// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reads serves GET, LIST and WATCH of custom resources from their encoded form.
// It stands in front of upstream's handler of custom resources, which decodes and encodes each
// object of each answer, and passes on whatever it cannot answer in the same bytes.
package reads
