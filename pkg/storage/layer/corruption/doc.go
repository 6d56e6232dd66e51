// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corruption detects objects that cannot be read, and names them.
//
// As in Kubernetes, lists of a resource with such an object fail and watches end with an
// error. Omitting the object would make clients treat it as deleted. In addition, the error
// names the objects, they are counted, and errors of a key service, a conversion webhook or
// etcd do not count as damage of the object.
package corruption
