// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxName keeps certificates small enough for every TLS library.
	maxName = 253

	anonymousUser        = "system:anonymous"
	serviceAccountPrefix = "system:serviceaccount:"
	authenticatedGroup   = "system:authenticated"
	anonymousGroup       = "system:unauthenticated"
	serviceAccountsGroup = "system:serviceaccounts"
)

// validate checks the flags without reading the data directory.
func (o *options) validate() error {
	if o.dataDir == "" {
		return errors.New("--data-dir must not be empty")
	}
	if o.user == "" {
		return errors.New("--user is required: who is to log in?")
	}
	if err := checkName("--user", o.user); err != nil {
		return err
	}
	switch {
	case o.user == anonymousUser:
		return fmt.Errorf("--user %s is the user of unauthenticated requests", o.user)
	case strings.HasPrefix(o.user, serviceAccountPrefix):
		return fmt.Errorf("--user %s is a service account: `kubectl create token` makes tokens for those", o.user)
	}
	for i, group := range o.groups {
		if err := checkGroup(group); err != nil {
			return err
		}
		if slices.Contains(o.groups[:i], group) {
			return fmt.Errorf("--group %s is given twice", group)
		}
	}
	if o.ttl < minTTL || o.ttl > maxTTL {
		return fmt.Errorf("--ttl %s must be between %s and %s", o.ttl, minTTL, maxTTL)
	}
	if o.server != "" {
		return checkServer(o.server)
	}
	return nil
}

func checkGroup(group string) error {
	if err := checkName("--group", group); err != nil {
		return err
	}
	switch {
	case group == authenticatedGroup:
		return fmt.Errorf("--group %s: every authenticated user is in it", group)
	case group == anonymousGroup:
		return fmt.Errorf("--group %s is of those who do not log in", group)
	case group == serviceAccountsGroup || strings.HasPrefix(group, serviceAccountsGroup+":"):
		return fmt.Errorf("--group %s is of service accounts: `kubectl create token` makes tokens for those", group)
	}
	return nil
}

// checkName rejects names that are mistakes or could be confused with others.
func checkName(flag, name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return fmt.Errorf("%s must not be empty", flag)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%s %q begins or ends with a space", flag, name)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%s %q has characters that cannot be printed", flag, name)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes, %d are allowed", flag, len(name), maxName)
	}
	return nil
}
