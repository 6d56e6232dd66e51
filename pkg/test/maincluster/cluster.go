// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
)

// Options configure a cluster. The zero value is valid.
type Options struct {
	// Programs of the cluster. Defaults to FindPrograms.
	Programs Programs
	// Dir holds certificates, kubeconfigs, logs and etcd's data. Only the user may have access.
	// Defaults to a temporary directory, which Stop removes.
	Dir string
	// EtcdEndpoint is the URL of an etcd of the caller. By default etcd runs in this process.
	EtcdEndpoint string
	// Controllers of kube-controller-manager. Defaults to DefaultControllers; NoControllers
	// runs none.
	Controllers []string
	// APIServers is the number of API servers, by default one. Several are behind a LoadBalancer.
	APIServers int
	// APIServerFlags and ControllerManagerFlags are added to the default flags, and override
	// them.
	APIServerFlags         []string
	ControllerManagerFlags []string
}

// Cluster is a running main cluster.
type Cluster struct {
	// Config is the administrator's, without a rate limit.
	Config *restclient.Config
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// URL of the API server, or of their load balancer.
	URL string
	// Dir holds all files of the cluster.
	Dir string

	opts       Options
	temporary  bool
	port       int
	etcd       *embeddedetcd.Server // nil if it is the caller's
	identities *identities

	apiServer, controllerManager atomic.Pointer[child]
	peers                        []*apiServer  // besides apiServer
	balancer                     *LoadBalancer // nil for one API server

	mu          sync.Mutex
	kubeconfigs int
	stopped     bool
}

// Start starts a cluster and returns when it is ready. ctx bounds the start; the cluster runs
// until Stop.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Programs == (Programs{}) {
		found, err := FindPrograms(ctx)
		if err != nil {
			return nil, err
		}
		opts.Programs = found
	}
	if opts.Controllers == nil {
		opts.Controllers = DefaultControllers()
	}
	c := &Cluster{opts: opts, Dir: opts.Dir}
	if c.Dir == "" {
		dir, err := os.MkdirTemp("", "main-cluster-")
		if err != nil {
			return nil, fmt.Errorf("create a directory for the main cluster: %w", err)
		}
		c.Dir, c.temporary = dir, true
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the main cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("find its directory: %w", err)
	}
	if c.identities, err = makeIdentities(c.Dir); err != nil {
		return err
	}
	if c.opts.EtcdEndpoint == "" {
		c.etcd, err = embeddedetcd.Start(ctx, embeddedetcd.Config{
			Dir:           filepath.Join(c.Dir, "etcd"),
			SocketPath:    filepath.Join(c.Dir, "etcd.sock"),
			UnsafeNoFsync: true,
		})
		if err != nil {
			return err
		}
		c.opts.EtcdEndpoint = c.etcd.Endpoint()
	}
	if err := c.startOnFreePort(ctx); err != nil {
		return err
	}
	if err := c.startPeers(ctx); err != nil {
		return err
	}
	return c.startControllerManager(ctx)
}

// Stop kills the cluster, and removes its directory if it is temporary. More calls do nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	children := []*child{c.controllerManager.Load(), c.apiServer.Load()}
	for _, peer := range c.peers {
		children = append(children, peer.child.Load())
	}
	for _, child := range children {
		if child != nil {
			child.kill()
		}
	}
	var err error
	if c.balancer != nil {
		err = c.balancer.Close()
	}
	if c.etcd != nil {
		err = errors.Join(err, c.etcd.Close())
	}
	if c.temporary {
		err = errors.Join(err, os.RemoveAll(c.Dir))
	}
	if err != nil {
		return fmt.Errorf("stop the main cluster: %w", err)
	}
	return nil
}

// EtcdKeys lists the keys in the cluster's own etcd with a prefix such as /registry/GROUP/.
func (c *Cluster) EtcdKeys(ctx context.Context, prefix string) ([]string, error) {
	found, err := c.etcd.Client().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the keys below %s in the main cluster's etcd: %w", prefix, err)
	}
	keys := make([]string, 0, len(found.Kvs))
	for _, pair := range found.Kvs {
		keys = append(keys, string(pair.Key))
	}
	return keys, nil
}

// EtcdValue returns what a key of the cluster's etcd has, as its API server wrote it.
func (c *Cluster) EtcdValue(ctx context.Context, key string) (string, error) {
	found, err := c.etcd.Client().Get(ctx, key)
	if err != nil {
		return "", fmt.Errorf("read key %s of the main cluster's etcd: %w", key, err)
	}
	if len(found.Kvs) == 0 {
		return "", fmt.Errorf("read key %s of the main cluster's etcd: it does not exist", key)
	}
	return string(found.Kvs[0].Value), nil
}

// EtcdKV returns the keys and values of the cluster's own etcd.
func (c *Cluster) EtcdKV() clientv3.KV { return c.etcd.Client().KV }

// PutEtcdKey writes a key of the cluster's etcd, past its API server.
func (c *Cluster) PutEtcdKey(ctx context.Context, key, value string) error {
	if _, err := c.etcd.Client().Put(ctx, key, value); err != nil {
		return fmt.Errorf("write key %s of the main cluster's etcd: %w", key, err)
	}
	return nil
}

// DeleteEtcdKeys deletes all keys with a prefix such as /registry/GROUP/, past the API server.
func (c *Cluster) DeleteEtcdKeys(ctx context.Context, prefix string) error {
	if _, err := c.etcd.Client().Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("delete the keys below %s in the main cluster's etcd: %w", prefix, err)
	}
	return nil
}

// DeleteEtcdKey deletes a key of the cluster's etcd, past its API server, like a restore of an
// older backup.
func (c *Cluster) DeleteEtcdKey(ctx context.Context, key string) error {
	if _, err := c.etcd.Client().Delete(ctx, key); err != nil {
		return fmt.Errorf("delete key %s of the main cluster's etcd: %w", key, err)
	}
	return nil
}

// Logs returns the ends of the logs of the cluster's programs. The complete logs are in Dir.
func (c *Cluster) Logs() string {
	var all strings.Builder
	for _, child := range []*child{c.apiServer.Load(), c.controllerManager.Load()} {
		if child != nil {
			all.WriteString(child.tail())
		}
	}
	return all.String()
}
