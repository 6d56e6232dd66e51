// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving tests an aggregated annex behind a main cluster without controllers: its
// certificates and CAs, its replicas, the logins that it accepts, the APIServices that it publishes,
// the source of moves from a main cluster, and that it validates as kube-apiserver does.
package serving
