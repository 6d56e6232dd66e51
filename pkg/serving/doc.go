// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving is an HTTPS server that can move clients to other replicas without
// losing a request.
//
// An aggregator sends all requests over one HTTP/2 connection. To close it, Go's server
// sends GOAWAY with the last request that it has received. Requests in flight are dropped,
// and the aggregator can only resend those without a body: writes get 503. RFC 9113
// section 6.8 describes the alternative: a first GOAWAY that excludes no request, and a
// second one after everything that crossed it has arrived. Go's server does not send the
// first one, so this package inserts it between two frames of Go's.
//
// Upstream's API server starts its own HTTP server. It gets a listener without connections:
// the Server of this package listens instead, and ends when upstream closes that listener.
package serving
