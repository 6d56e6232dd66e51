// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdclientlog silences the etcd clients that upstream's storage creates. They write
// JSON to standard error, without klog and its flags, for every request that fails or is
// cancelled. The errors are also returned, and logged where they matter.
//
// Upstream creates their logger in an init function, from etcd's defaults, without an option.
// This package changes the defaults before: packages are initialized in the order of their
// import paths, as far as their imports allow (Go specification, Package initialization), and
// this one imports only etcd's. Import it for that effect alone.
package etcdclientlog

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = nil
}
