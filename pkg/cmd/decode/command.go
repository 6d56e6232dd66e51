// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decode implements `annex decode`, which decompresses a value as an etcd tool
// printed it. It needs no running annex, only the dictionary of most values, which is in etcd.
package decode

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
)

const encryptedPrefix = "k8s:enc:"

type options struct {
	file           string
	dictionaryFile string
	dataDir        string
	prefix         string
	etcd           login.Etcd

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
	file, dir, etcd := o.dictionaryFile != "", o.dataDir != "", o.etcd.Given()
	if file && (dir || etcd) || dir && etcd {
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

// unwrap returns the value that a tool printed: with its key on a line before it, in
// base64, in hexadecimal, or as the JSON of `etcdctl get`. Other text is returned
// unchanged.
func unwrap(printed []byte) ([]byte, error) {
	if value, found, err := fromJSON(printed); found || err != nil {
		return value, err
	}
	_, afterKey, hasKey := bytes.Cut(printed, []byte("\n"))
	if hasKey && bytes.HasPrefix(printed, []byte("/")) && isOurs(afterKey) {
		return afterKey, nil
	}
	for _, value := range encodings(printed) {
		if isOurs(value) {
			return value, nil
		}
	}
	return printed, nil
}

// isOurs reports whether annex certainly wrote a value.
func isOurs(value []byte) bool {
	return compression.IsCompressed(value) || bytes.HasPrefix(value, []byte(encryptedPrefix))
}

// encodings returns the values that text may encode.
func encodings(text []byte) [][]byte {
	// Lines may be wrapped, and etcdctl --hex prints \x before each byte.
	joined := bytes.Join(bytes.Fields(text), nil)
	var values [][]byte
	if value, err := base64.StdEncoding.AppendDecode(nil, joined); err == nil {
		values = append(values, value)
	}
	if value, err := hex.AppendDecode(nil, bytes.ReplaceAll(joined, []byte(`\x`), nil)); err == nil {
		values = append(values, value)
	}
	return values
}

// fromJSON finds the value in what `etcdctl get --write-out json` prints.
func fromJSON(printed []byte) (value []byte, found bool, err error) {
	var answer struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id"`
		} `json:"header"`
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	isJSON := json.Unmarshal(printed, &answer) == nil
	if !isJSON || answer.Header.ClusterID == 0 {
		return nil, false, nil
	}
	if len(answer.KVs) != 1 {
		return nil, false, fmt.Errorf("etcdctl found %d keys, give one", len(answer.KVs))
	}
	return answer.KVs[0].Value, true, nil
}

func (o *options) dictionary(ctx context.Context, id uint32) ([]byte, error) {
	if o.dictionaryFile != "" {
		return o.dictionaryOfFile(id)
	}
	if o.dataDir != "" || o.etcd.Given() {
		return o.dictionaryOfEtcd(ctx, id)
	}
	return nil, errors.New("it is in the Store of the value: give --data-dir, --etcd-servers or --dictionary-file")
}

func (o *options) dictionaryOfFile(id uint32) ([]byte, error) {
	printed, err := os.ReadFile(o.dictionaryFile)
	if err != nil {
		return nil, fmt.Errorf("--dictionary-file: %w", err)
	}
	for _, value := range append(encodings(printed), printed) {
		if err = refuseEncrypted("--dictionary-file "+o.dictionaryFile, value); err != nil {
			return nil, err
		}
		var content []byte
		if content, err = compression.TrimDictionary(id, value); err == nil {
			return content, nil
		}
	}
	return nil, fmt.Errorf("--dictionary-file %s: %w", o.dictionaryFile, err)
}

func (o *options) dictionaryOfEtcd(ctx context.Context, id uint32) ([]byte, error) {
	annexEtcd, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer annexEtcd.Close()
	ctx, cancel := context.WithTimeout(ctx, externaletcd.Timeout)
	defer cancel()
	return o.find(ctx, annexEtcd, id)
}

func (o *options) connect(ctx context.Context) (*clientv3.Client, error) {
	if o.dataDir == "" {
		return o.etcd.Connect(ctx)
	}
	socket, err := runningSocket(ctx, o.dataDir)
	if err != nil {
		return nil, err
	}
	return externaletcd.NewClient(storagebackend.TransportConfig{ServerList: []string{"unix://" + socket}})
}

// find searches the dictionaries of all resources, because the value does not name its
// resource. Dictionaries with the same ID are equal.
func (o *options) find(ctx context.Context, annexEtcd clientv3.KV, id uint32) ([]byte, error) {
	folder := keys.AllDictionaries(o.prefix)
	all, err := annexEtcd.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the dictionaries below %s: %w", folder, err)
	}
	name := "/" + strconv.FormatUint(uint64(id), 10)
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		if !strings.HasSuffix(key, name) {
			continue
		}
		found, err := annexEtcd.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("read the dictionary %s: %w", key, err)
		}
		if len(found.Kvs) == 0 {
			continue
		}
		return found.Kvs[0].Value, refuseEncrypted("the dictionary "+key, found.Kvs[0].Value)
	}
	return nil, fmt.Errorf("it is not below %s in this etcd (--etcd-prefix)", folder)
}

func runningSocket(ctx context.Context, dataDir string) (string, error) {
	dir, err := datadir.Find(dataDir)
	if err != nil {
		return "", err
	}
	socket, err := dir.RunningEtcdSocket()
	if err == nil {
		var line net.Conn
		if line, err = (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			return socket, line.Close()
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("--data-dir %s: no annex with an embedded etcd runs there: start it, or give the dictionary by another flag", filepath.Clean(dataDir))
	}
	return "", err
}
