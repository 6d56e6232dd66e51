// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/annex-dev/annex/pkg/staticobjects"
)

// Static configures the sources of static objects.
type Static struct {
	Dir           string
	URL           string
	URLHeaderFile string
	URLCAFile     string
	CheckInterval time.Duration
}

// NewStatic returns the defaults, with the interval of a kubelet and without sources.
func NewStatic() *Static { return &Static{CheckInterval: 20 * time.Second} }

// AddFlags adds the flags.
func (o *Static) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Dir, "static-dir", o.Dir,
		"Folder of YAML and JSON files with objects that annex creates, and changes and deletes with the files. Empty turns this off.")
	fs.StringVar(&o.URL, "static-url", o.URL,
		"URL, beginning with https://, of such objects. http:// is allowed for this machine only. Empty turns this off.")
	fs.StringVar(&o.URLHeaderFile, "static-url-header-file", o.URLHeaderFile,
		"File with headers for --static-url, each in a line such as \"Authorization: Bearer TOKEN\". It is read for each request.")
	fs.StringVar(&o.URLCAFile, "static-url-ca-file", o.URLCAFile,
		"File with the authorities that verify the server of --static-url. Empty uses those of the system.")
	fs.DurationVar(&o.CheckInterval, "static-check-interval", o.CheckInterval,
		"How often --static-url is requested, and --static-dir is read without a notification of a change.")
}

// Validate checks the flags.
func (o *Static) Validate() []error {
	var errs []error
	if o.CheckInterval < time.Second {
		errs = append(errs, errors.New("--static-check-interval must be at least 1s"))
	}
	if o.URL == "" {
		if o.URLHeaderFile != "" || o.URLCAFile != "" {
			errs = append(errs, errors.New("--static-url-header-file, --static-url-ca-file: --static-url must be set"))
		}
		return errs
	}
	if _, err := staticobjects.ParseURL(o.URL); err != nil {
		errs = append(errs, fmt.Errorf("--static-url: %w", err))
	}
	return errs
}

// Sources returns the sources. A folder or a server need not exist yet.
func (o *Static) Sources() (*staticobjects.Sources, error) {
	var sources []staticobjects.Source
	if o.Dir != "" {
		sources = append(sources, staticobjects.NewDir(o.Dir, o.CheckInterval))
	}
	if o.URL != "" {
		source, err := staticobjects.NewHTTP(staticobjects.HTTPConfig{
			URL: o.URL, HeaderFile: o.URLHeaderFile, CAFile: o.URLCAFile, Interval: o.CheckInterval,
		})
		if err != nil {
			return nil, fmt.Errorf("--static-url, --static-url-header-file, --static-url-ca-file: %w", err)
		}
		sources = append(sources, source)
	}
	return staticobjects.NewSources(sources...), nil
}
