// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
)

// Data configures the data directory.
type Data struct {
	Dir string
}

// NewData returns the default, in the working directory.
func NewData() *Data { return &Data{Dir: ".annex"} }

// AddFlags adds --data-dir.
func (o *Data) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Dir, "data-dir", o.Dir,
		"Directory of the embedded etcd, the certificates and admin.kubeconfig. It is created if it does not exist, and only one annex may use it at a time.")
}

// Complete makes the path absolute, because it is printed.
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

// Validate checks the flag.
func (o *Data) Validate() []error {
	if o.Dir == "" {
		return []error{fmt.Errorf("--data-dir must not be empty")}
	}
	return nil
}
