// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"io"
	"strings"

	"github.com/annex-dev/annex/pkg/cmd/output"
)

const maxNamed = 10

type unreadable struct {
	count int64
	named []string
}

func (u *unreadable) add(keys ...string) {
	u.count += int64(len(keys))
	u.named = append(u.named, keys[:min(len(keys), maxNamed-len(u.named))]...)
}

// warn prints a warning that names the objects and their fate, if there are any.
func (u *unreadable) warn(errOut io.Writer, fate string) error {
	if u.count == 0 {
		return nil
	}
	names := strings.Join(u.named, ", ")
	if others := u.count - int64(len(u.named)); others > 0 {
		names += fmt.Sprintf(" and %d others", others)
	}
	_, err := fmt.Fprintf(errOut, "annex: warning: %s cannot be read, %s: %s\n", output.Count(u.count, "object"), fate, names)
	return err
}
