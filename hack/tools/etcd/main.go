// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd itself, built from the module that go.mod pins. etcd's own
// command lies in a module that cannot be required: it replaces others.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
