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
		{"-oyaml", "a: <b>\n", ""},
		{"-owide", "wide\n", ""},
		{"-oxml", "", "must be text, wide, json, yaml"},
	} {
		var format Format
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		format.AddFlag(flags, Wide)
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
			text := "text\n"
			if format.Is(Wide) {
				text = "wide\n"
			}
			_, err := io.WriteString(&out, text)
			return err
		}))
		expect.Equal(t, tc.want, out.String())
	}
	var narrow Format
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	narrow.AddFlag(flags)
	expect.Error(t, flags.Parse([]string{"-owide"}), "must be text, json, yaml")
}
