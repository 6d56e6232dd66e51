// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile reloads configuration files of any content while annex serves, and
// finds the lines of their errors.
package configfile
