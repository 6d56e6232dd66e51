// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decode implements `annex decode`, which decompresses a value as an etcd tool
// printed it. It needs no running annex, only the dictionary of most values, which is in etcd.
package decode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/etcdflags"
	"github.com/annex-dev/annex/pkg/storage/compression"
)

// encryptedPrefix is the prefix of every encrypted value, whatever its provider.
const encryptedPrefix = "k8s:enc:"

// options are the flags.
type options struct {
	file           string
	dictionaryFile string
	dataDir        string
	prefix         string
	etcd           etcdflags.Options

	in io.Reader
}

// NewCommand returns `annex decode`, which prints to out.
func NewCommand(in io.Reader, out io.Writer) *cobra.Command {
	o := &options{prefix: "/annex", in: in}
	cmd := &cobra.Command{
		Use:   "decode",
		Short: "Decompress a value from etcd",
		Long: "Decompress a value from etcd, as `etcdctl get` prints it, in base64 or in hexadecimal. A value that is not\n" +
			"compressed is printed unchanged. The dictionary of the value is read from its Store: --data-dir of a running\n" +
			"annex, or --etcd-servers. Encrypted values are rejected: only annex can read them.",
		Example: "  export ETCDCTL_ENDPOINTS=unix://$PWD/.annex/etcd/client.sock\n" +
			"  etcdctl get /annex/example.com/widgets/default/w --print-value-only | annex decode --data-dir .annex\n" +
			"  # Without an etcd:\n" +
			"  annex decode --file value --dictionary-file dictionary",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), out)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.file, "file", o.file, "The file with the value. If not set, it is read from standard input.")
	fs.StringVar(&o.dictionaryFile, "dictionary-file", o.dictionaryFile, "A file with the dictionary, as stored in etcd.")
	fs.StringVar(&o.dataDir, "data-dir", o.dataDir, "The data directory of a running annex whose etcd has the dictionary.")
	fs.StringVar(&o.prefix, "etcd-prefix", o.prefix, "The prefix of the keys in that etcd: --etcd-prefix of annex, or spec.etcd.keyPrefix of a Store.")
	o.etcd.AddFlags(fs, "The etcd that has the dictionary.")
	return cmd
}

func (o *options) validate() error {
	sources := 0
	for _, given := range []bool{o.dictionaryFile != "", o.dataDir != "", o.etcd.Given()} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return errors.New("give one of --dictionary-file, --data-dir and --etcd-servers")
	}
	return o.etcd.Validate()
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	printed, err := o.read()
	if err != nil {
		return err
	}
	if printed, err = unwrap(printed); err != nil {
		return err
	}
	if err := refuseEncrypted("the value", printed); err != nil {
		return err
	}
	if compression.IsCompressed(printed) {
		if printed, err = compression.Trim(printed); err != nil {
			return fmt.Errorf("decode the value: %w", err)
		}
	}
	plain, err := compression.Decode(printed, func(id uint32) ([]byte, error) { return o.dictionary(ctx, id) })
	if err != nil {
		return fmt.Errorf("decode the value: %w", err)
	}
	_, err = out.Write(plain)
	return err
}

func (o *options) read() ([]byte, error) {
	if o.file != "" {
		data, err := os.ReadFile(o.file)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		return data, nil
	}
	data, err := io.ReadAll(o.in)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(data) == 0 {
		return nil, errors.New("standard input is empty: does etcd have the key?")
	}
	return data, nil
}

// refuseEncrypted returns an error for an encrypted value.
func refuseEncrypted(what string, data []byte) error {
	if !bytes.HasPrefix(data, []byte(encryptedPrefix)) {
		return nil
	}
	provider := data[:min(len(data), 60)]
	// k8s:enc:<provider>:<version>:<name of the key>:<encrypted>
	const colons = 5
	if parts := bytes.SplitAfterN(provider, []byte(":"), colons+1); len(parts) > colons {
		provider = bytes.Join(parts[:colons], nil)
	}
	return fmt.Errorf("%s is encrypted (%q): annex decode has no keys, read the object through annex", what, provider)
}
