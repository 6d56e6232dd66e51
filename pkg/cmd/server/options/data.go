// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
)

// Data says where annex keeps what it must not lose: the embedded etcd, its
// keys and certificates, and the administrator's kubeconfig.
type Data struct {
	Dir string
}

// NewData returns the default: a folder in the working directory.
func NewData() *Data { return &Data{Dir: ".annex"} }

// AddFlags adds --data-dir.
func (o *Data) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Dir, "data-dir", o.Dir,
		"The folder for the embedded etcd, the certificates and admin.kubeconfig. It is made if it is not there, and used by one annex at a time.")
}

// Complete makes the path absolute, so that what is printed works in any folder.
func (o *Data) Complete() error {
	if o.Dir == "" {
		return nil
	}
	absolute, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	o.Dir = absolute
	return nil
}

// Validate checks the flag; the folder is checked when it is opened.
func (o *Data) Validate() []error {
	if o.Dir == "" {
		return []error{fmt.Errorf("--data-dir must not be empty")}
	}
	return nil
}
