// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package noninterference proves that annex does not disturb a real main cluster:
// its discovery and OpenAPI documents, controllers and admission, with annex healthy,
// with its Store down and with annex uninstalled.
package noninterference
