// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup is the endpoints that backups are read from and written to:
//
//	POST stores/NAME/backup            a part of a backup of a Store
//	POST hostedresources/NAME/backup   a part of a backup of one resource
//	POST stores/NAME/restore           a part of a resource that goes to a Store
//
// A request is for one part, which takes seconds: a main cluster's API server, which
// knows nothing of these endpoints, ends requests after a minute. The client puts the
// parts together; see pkg/storage/backup for the format.
package backup
