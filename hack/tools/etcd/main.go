// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd, built from the module that go.mod pins. etcd's own command is in a
// module with replace directives, which cannot be required.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
