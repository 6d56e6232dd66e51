// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticobjects reads objects from a folder and a URL, and decides which mirrors in the
// API to write, as a kubelet does for static Pods. It has no client: pkg/controller/staticobjects
// writes the mirrors.
package staticobjects
