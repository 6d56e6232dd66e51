// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import "errors"

// Disk returns an error: annex keeps no data on Windows.
func Disk(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
