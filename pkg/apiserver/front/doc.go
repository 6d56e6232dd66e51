// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package front has what handlers of custom resources need that are in front of upstream's: it recognizes the requests
// that upstream would serve from storage, finds the storage that upstream created for them, and has the scope, the keys
// and the serializer for upstream's request handlers. What such a handler cannot answer, upstream's does.
package front
