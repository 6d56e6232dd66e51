// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/freeport"
)

// apiServer is an API server besides the first one, on the same etcd.
type apiServer struct {
	name  string
	port  int
	child atomic.Pointer[child]
}

// startPeers starts the other API servers, and puts a load balancer in front of all.
func (c *Cluster) startPeers(ctx context.Context) error {
	if c.opts.APIServers < 2 {
		return nil
	}
	for i := 1; i < c.opts.APIServers; i++ {
		port, err := freeport.Find(ctx)
		if err != nil {
			return err
		}
		peer := &apiServer{name: fmt.Sprintf("kube-apiserver-%d", i), port: port}
		c.peers = append(c.peers, peer)
		if err := c.startPeer(ctx, peer); err != nil {
			return err
		}
	}
	var err error
	if c.balancer, err = NewLoadBalancer(LoadBalancerOptions{}); err != nil {
		return err
	}
	for i := range c.opts.APIServers {
		c.balancer.Add(freeport.Address(c.portOf(i)))
	}
	return c.writeKubeconfigs()
}

func (c *Cluster) startPeer(ctx context.Context, peer *apiServer) error {
	// A port that is given twice is the last one.
	flags := append(c.apiServerFlags(), "--secure-port="+strconv.Itoa(peer.port))
	started, err := startChild(c.Dir, peer.name, c.opts.Programs.PeerAPIServer, flags)
	if err != nil {
		return err
	}
	peer.child.Store(started)
	return c.waitReady(ctx, started, c.at(peer.port))
}

func (c *Cluster) portOf(i int) int {
	if i == 0 {
		return c.port
	}
	return c.peers[i-1].port
}

// at returns the administrator's configuration for one API server.
func (c *Cluster) at(port int) *restclient.Config {
	config := restclient.CopyConfig(c.Config)
	config.Host = "https://" + freeport.Address(port)
	return config
}

// ConfigOf returns the administrator's configuration for one of several API servers.
func (c *Cluster) ConfigOf(i int) *restclient.Config { return c.at(c.portOf(i)) }

// RestartAPIServer kills one of several API servers, starts it again at its address, and returns when it
// is ready. Until then the load balancer uses the others.
func (c *Cluster) RestartAPIServer(ctx context.Context, i int) error {
	address := freeport.Address(c.portOf(i))
	c.balancer.SetReady(address, false)
	var err error
	if i == 0 {
		c.KillAPIServer()
		err = c.startAPIServer(ctx)
	} else {
		peer := c.peers[i-1]
		peer.child.Load().kill()
		err = c.startPeer(ctx, peer)
	}
	if err == nil {
		c.balancer.SetReady(address, true)
	}
	return err
}

// SignalAPIServer sends a signal to the process of one of several API servers.
func (c *Cluster) SignalAPIServer(i int, signal os.Signal) error {
	server := &c.apiServer
	if i > 0 {
		server = &c.peers[i-1].child
	}
	if err := server.Load().command.Process.Signal(signal); err != nil {
		return fmt.Errorf("send %s to kube-apiserver %d: %w", signal, i, err)
	}
	return nil
}
