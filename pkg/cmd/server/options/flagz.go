// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"regexp"

	"k8s.io/apiserver/pkg/server/flagz"
)

// Flagz returns all flags for /flagz, without secrets.
func (o CompletedOptions) Flagz() flagz.Reader {
	return redacted{flagz.NamedFlagSetsReader{FlagSets: o.Flags()}}
}

// classified is upstream's annotation of flags with a secret value.
const classified = "classified"

// userinfo matches the user name and password of a URL.
var userinfo = regexp.MustCompile(`://[^/?#@\s,;]+@`)

// redacted removes credentials from URLs. Other secrets are in files, not in flags.
type redacted struct {
	flags flagz.Reader
}

var _ flagz.Reader = redacted{}

// GetFlagz implements flagz.Reader.
func (r redacted) GetFlagz() map[string]string {
	values := r.flags.GetFlagz()
	for name, value := range values {
		values[name] = userinfo.ReplaceAllString(value, "://REDACTED@")
	}
	return values
}
