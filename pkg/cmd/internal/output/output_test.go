// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/pflag"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ argument, want, err string }{
		{"", "text\n", ""},
		{"--output=text", "text\n", ""},
		{"-ojson", "{\n  \"a\": \"<b>\"\n}\n", ""},
		{"-oyaml", "", "--output"},
	} {
		var format Format
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		format.AddFlag(flags)
		var arguments []string
		if tc.argument != "" {
			arguments = append(arguments, tc.argument)
		}
		err := flags.Parse(arguments)
		expect.ErrorOrNone(t, err, tc.err)
		if err != nil {
			continue
		}
		var out bytes.Buffer
		expect.NoError(t, format.Print(&out, map[string]string{"a": "<b>"}, func() error {
			_, err := io.WriteString(&out, "text\n")
			return err
		}))
		expect.Equal(t, tc.want, out.String())
	}
}
