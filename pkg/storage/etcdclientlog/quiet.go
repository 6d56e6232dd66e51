// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdclientlog silences the etcd clients that upstream's storage makes.
// They write JSON to standard error, past klog and its flags, for every request
// that fails or is cancelled; the errors are returned as well, and logged where
// they matter.
//
// Upstream makes their logger in an init function, from etcd's defaults, and has
// no option for it. This package changes the defaults before: packages are
// initialized in the order of their import paths, as far as their imports allow
// (Go specification, Package initialization), and this one needs only etcd's.
// It is imported for that effect alone.
package etcdclientlog

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = nil
}
