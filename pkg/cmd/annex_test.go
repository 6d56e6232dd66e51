// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestExecute(t *testing.T) {
	for arguments, want := range map[string][]string{
		"version":      {"annex v", "Kubernetes v1."},
		"--version":    {"annex v", "Kubernetes v1."},
		"--help":       {"serve", "version"},
		"serve --help": {"Annex flags:", "Etcd flags:", "--data-dir", "--secure-port", "--feature-gates"},
	} {
		t.Run(arguments, func(t *testing.T) {
			var out, errOut bytes.Buffer
			if code := Execute(strings.Fields(arguments), &out, &errOut); code != 0 || errOut.Len() > 0 {
				t.Errorf("exit code %d: %s", code, errOut.String())
			}
			expect.Contains(t, out.String(), want...)
		})
	}
}

// TestRefused: the error is one line, and names what is wrong.
func TestRefused(t *testing.T) {
	const injector = "injector --client-ca-file=a --allowed-names=b "
	for arguments, want := range map[string]string{
		"sevre":                            "did you mean serve?",
		"statsu":                           `unknown command "statsu" for "annex"; did you mean status?`,
		"xyz":                              `unknown command "xyz" for "annex"` + "\n",
		"status x":                         `unknown command "x" for "annex status"` + "\n",
		"serve --no-such-flag":             "--no-such-flag",
		"serve now":                        "now",
		"serve --secure-port=70000":        "--secure-port",
		"backup x":                         "--store or --resource",
		"restore x --data-dir=a --store=b": "--data-dir and --etcd-servers restore a whole Store",
		"place":                            "accepts 1 arg",
		"place widgets":                    "<plural>.<group>",
		"scheduler --scheduler-name=":      "--scheduler-name",
		"scheduler --leader-elect-retry-period=0": "--leader-elect-retry-period",
		"top --sort-by=size":                      `--sort-by "size" must be`,
		"top --interval=0s":                       "--interval 0s must be positive",
		"move":                                    "accepts 1 arg",
		"move widgets":                            `"widgets" must be an API group with a dot`,
		"move Example.com":                        "must be an API group",
		"move example.com --objects-per-second=x": "--objects-per-second",
		"move example.com --kubeconfig=/absent":   "--kubeconfig",
		"status -v=x":                             `"x" for "-v, --v" flag`,
		"doctor --output=xml":                     "--output",
		"doctor --service-account=":               "--service-account",
		"doctor --publish-service=annex":          "--publish-service",
		"doctor --kubeconfig=/no/such/file":       "--kubeconfig",
		"doctor now":                              "now",
		"injector x":                              `unknown command "x"`,
		"injector":                                "--client-ca-file is required",
		"injector --client-ca-file=a":             "--allowed-names is required",
		"injector --allowed-names=a,,b":           "--allowed-names is required",
		injector:                                  "one of --tls-cert-file and --signer-name is required",
		injector + "--tls-cert-file=a --tls-private-key-file=b --signer-name=example.com/a": "one of --tls-cert-file and --signer-name",
		injector + "--tls-cert-file=a":                                    "both are required",
		injector + "--signer-name=example.com":                            `--signer-name "example.com"`,
		injector + "--signer-name=example.com/a --bind-address=localhost": "--bind-address",
		injector + "--signer-name=example.com/a --secure-port=0":          "--secure-port 0",
		injector + "--signer-name=example.com/a --certificate-hosts=a_b":  `--certificate-hosts "a_b"`,
		injector + "--signer-name=example.com/a --certificate-hosts=":     "--certificate-hosts must not be empty",
		injector + "--signer-name=example.com/a --cert-dir=":              "--cert-dir must not be empty",
	} {
		t.Run(arguments, func(t *testing.T) {
			var out, errOut bytes.Buffer
			if code := Execute(strings.Fields(arguments), &out, &errOut); code != 1 || out.Len() > 0 {
				t.Errorf("exit code %d: %s", code, out.String())
			}
			text := errOut.String()
			if !strings.HasPrefix(text, "annex: ") || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 {
				t.Errorf("the error is not one line with %q: %s", want, text)
			}
		})
	}
}

func TestDisplayName(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/local/bin/annex": "annex", "kubectl-annex": "kubectl annex", "/bin/kubectl-annex.exe": "kubectl annex", "/tmp/cmd.test": "annex",
	} {
		if got := displayName(program); got != want {
			t.Errorf("%s is called %q, want %q", program, got, want)
		}
	}
}
