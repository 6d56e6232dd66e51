// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestFlagz(t *testing.T) {
	o, err := parse(t, "--service-account-jwks-uri=https://root:hunter2@127.0.0.1/jwks", "--secure-port=1234", "--feature-gates=WatchList=true")
	expect.NoError(t, err)
	values := o.Flagz().GetFlagz()
	for name, want := range map[string]string{
		"secure-port":              "1234",                            // as given
		"bind-address":             "127.0.0.1",                       // by default
		"service-account-jwks-uri": "https://REDACTED@127.0.0.1/jwks", // without the password
	} {
		if values[name] != want {
			t.Errorf("--%s is shown as %q, want %q", name, values[name], want)
		}
	}
	if !strings.Contains(values["feature-gates"], "WatchList=true") {
		t.Errorf("--feature-gates is shown as %q", values["feature-gates"])
	}
	for name, value := range values {
		if strings.Contains(value, "hunter2") {
			t.Errorf("--%s shows a password: %s", name, value)
		}
	}
	if got := o.Tokens.KeysURI; !strings.Contains(got, "hunter2") {
		t.Errorf("reading the flags changed them: %s", got)
	}
}

// TestFlagsHoldNoSecrets finds flags with the name of a secret that are neither files nor
// hidden from /flagz.
func TestFlagsHoldNoSecrets(t *testing.T) {
	namesFiles := sets.New("tls-sni-cert-key")
	secret := regexp.MustCompile(`(^|-)(password|secret|token|key|credentials?)$`)
	for _, set := range New().Flags().FlagSets {
		set.VisitAll(func(flag *pflag.Flag) {
			if secret.MatchString(flag.Name) && !namesFiles.Has(flag.Name) && len(flag.Annotations[classified]) == 0 {
				t.Errorf("--%s would be shown by /flagz: annotate it as %q", flag.Name, classified)
			}
		})
	}
}
