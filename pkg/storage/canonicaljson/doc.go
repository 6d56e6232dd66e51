// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package canonicaljson reads and writes JSON in the form in which encoding/json writes maps, and upstream stores and
// answers custom resources: without white space, with sorted keys, and each string and number in one form. Values in
// this form are equal if their texts are.
package canonicaljson
