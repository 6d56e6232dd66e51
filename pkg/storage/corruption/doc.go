// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corruption finds the objects that cannot be read, and names them.
//
// As in Kubernetes, lists of a resource with such an object fail and watches end with
// an error: nothing is left out, because a client would take what is missing for
// deleted. What this package adds is that the error names the objects, that they are
// counted, and that a value is called damaged only if the value is at fault, and not a
// key service, a conversion webhook or an etcd that does not answer.
package corruption
