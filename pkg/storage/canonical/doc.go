// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package canonical recognises stored custom resources that upstream's codec would decode to
// what is stored, so that they need not go through it.
//
// That codec prunes unknown fields and nulls, adds defaults, normalises the metadata, and
// converts (k8s.io/apiextensions-apiserver/pkg/apiserver, unstructuredSchemaCoercer and
// schemaCoercingConverter). It takes ten times as long as reading the object once and finding
// that there is nothing to do, which is so for almost all objects: they were pruned and defaulted
// when they were written.
//
// A Schema never guesses. What it does not recognise, for whatever reason, is left to the codec.
package canonical
