// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile is what configuration files have in common: being followed
// while annex serves, and saying in which line what is wrong with them. It knows
// nothing of what the files are about.
package configfile
