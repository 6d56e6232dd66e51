// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"regexp"

	"k8s.io/apiserver/pkg/server/flagz"
)

// Flagz gives /flagz the values of all flags, without what is secret.
func (o CompletedOptions) Flagz() flagz.Reader {
	return redacted{flagz.NamedFlagSetsReader{FlagSets: o.Flags()}}
}

// classified is the annotation of a flag whose whole value is secret. Upstream
// does not show such values.
const classified = "classified"

// userinfo is what may be before the host of a URL: a name, and often a password.
var userinfo = regexp.MustCompile(`://[^/?#@\s,;]+@`)

// redacted hides what people put into URLs. None of annex's flags takes a secret
// as such: they name files.
type redacted struct {
	flags flagz.Reader
}

var _ flagz.Reader = redacted{}

// GetFlagz returns the flags' values by name.
func (r redacted) GetFlagz() map[string]string {
	values := r.flags.GetFlagz()
	for name, value := range values {
		values[name] = userinfo.ReplaceAllString(value, "://REDACTED@")
	}
	return values
}
