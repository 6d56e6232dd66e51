// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/keys"
)

// dictionary returns the dictionary with an ID.
func (o *options) dictionary(ctx context.Context, id uint32) ([]byte, error) {
	switch {
	case o.dictionaryFile != "":
		return o.dictionaryOfFile(id)
	case o.dataDir != "" || o.etcd.Given():
		return o.dictionaryOfEtcd(ctx, id)
	default:
		return nil, fmt.Errorf("it is in the Store of the value: give --data-dir, --etcd-servers or --dictionary-file")
	}
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

// runningSocket returns the socket of the etcd of a running annex.
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
