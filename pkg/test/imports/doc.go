// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package imports keeps the layers of the code base apart: a table says what each
// package is for and what it may import, and a test holds every package to it. It
// also keeps the rules of style that a machine can check.
package imports
