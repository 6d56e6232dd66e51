// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
)

// Data configures the data directory, and the archive.
type Data struct {
	Dir string
	// ArchiveDir is empty without an archive.
	ArchiveDir string
}

// NewData returns the default, in the working directory.
func NewData() *Data { return &Data{Dir: ".annex"} }

// AddFlags adds --data-dir and --archive-dir.
func (o *Data) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Dir, "data-dir", o.Dir,
		"Directory of the embedded etcd, the certificates and admin.kubeconfig. It is created if it does not exist, and only one annex may use it at a time.")
	fs.StringVar(&o.ArchiveDir, "archive-dir", o.ArchiveDir,
		"Absolute path of the directory in which retentions with archive: true keep objects before they delete them. It is created if it does not exist, and only its owner may have access. If not set, such retentions delete nothing.")
}

// Validate checks the flags.
func (o *Data) Validate() (errs []error) {
	if o.Dir == "" {
		errs = append(errs, fmt.Errorf("--data-dir must not be empty"))
	}
	if o.ArchiveDir != "" && !filepath.IsAbs(o.ArchiveDir) {
		errs = append(errs, fmt.Errorf("--archive-dir must be an absolute path, got %q", o.ArchiveDir))
	}
	return errs
}
