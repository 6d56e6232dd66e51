// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticobjects reads objects from a folder and a URL, and decides what has to happen
// for the API to have a mirror of each, as a kubelet does for static Pods. It has no client:
// pkg/controller/staticobjects writes the mirrors.
package staticobjects
