// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy holds the manifests that programs need too, so that what they
// check and what is applied have one source.
package deploy

import _ "embed" // for RBAC

// RBAC is base/rbac.yaml: all that annex may do in the main cluster.
//
//go:embed base/rbac.yaml
var RBAC string
