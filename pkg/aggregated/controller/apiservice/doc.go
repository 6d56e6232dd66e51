// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiservice has the main cluster send requests to annex: it keeps one
// APIService there for every group version that annex serves, and says on each
// HostedResource how that stands.
//
// The APIService of annex's own group comes first. Only when the main cluster
// finds it available, and the Store "default" read through the main cluster is
// the very one that annex has, do the others follow: an APIService that leads
// nowhere breaks discovery for everybody in the main cluster.
//
// What annex made carries its label and is put right whenever it is changed or
// deleted. What it did not make is reported and left alone, with one exception:
// the local APIService of a definition whose takeover is cleared. An APIService
// goes only when annex no longer serves its version, never because annex stops.
package apiservice
