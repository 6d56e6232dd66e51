// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup has the endpoints of backups:
//
//	POST stores/NAME/backup            a part of a backup of a Store
//	POST hostedresources/NAME/backup   a part of a backup of one resource
//	POST stores/NAME/restore           a part of a resource to restore to a Store
//
// A request is for one part, which takes seconds: the API server of a main cluster ends
// requests after a minute. The client joins the parts; see pkg/storage/backup for the format.
package backup
