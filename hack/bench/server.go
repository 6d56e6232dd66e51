// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/process"
)

// retryInterval is the time between two attempts of what is not yet served.
const retryInterval = 5 * time.Millisecond

// server is an API server, a process of this machine.
type server struct {
	// name is the key of its figures.
	name   string
	client *client
	api    *clients.Clients
	config *restclient.Config
	// etcd is nil if it is embedded. prefix begins the keys of objects in it.
	etcd   *clientv3.Client
	prefix string
	// objects is the resource whose objects are read and written.
	objects resource

	// pids returns the processes whose CPU time and memory count.
	pids  func() []int
	start func(context.Context) error // returns when it is ready
	kill  func()
	// ready is the time from the start of annex's process until it was ready.
	ready time.Duration
}

// startAnnex starts a standalone annex on a data directory of the session.
func (s *session) startAnnex(ctx context.Context, name string, flags []string, environment ...string) (*server, error) {
	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}
	var running *process.Annex
	annex := &server{name: annexName, prefix: "/annex/", objects: records}
	annex.pids = func() []int { return []int{running.PID()} }
	annex.kill = func() { running.Kill() }
	annex.start = func(ctx context.Context) error {
		command := exec.Command(s.program(annexName), "serve", "--data-dir="+filepath.Join(s.dir, name), "--secure-port="+strconv.Itoa(port)) //nolint:noctx // it outlives the call
		command.Args = append(command.Args, flags...)
		command.Env = append(os.Environ(), environment...)
		var err error
		if running, err = process.StartCommand(command); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, waitLimit)
		defer cancel()
		err = running.WaitReady(ctx)
		annex.ready = time.Since(running.Started())
		return err
	}
	s.atEnd(func() error {
		if running != nil {
			running.Kill()
		}
		return nil
	})
	if err := annex.start(ctx); err != nil {
		return nil, err
	}
	if annex.config, err = running.Config(); err != nil {
		return nil, err
	}
	return annex, annex.connect()
}

// startAnnexOnEtcd starts an annex with an etcd of its own. Garbage collection is switched off,
// because kube-apiserver leaves it to another process.
func (s *session) startAnnexOnEtcd(ctx context.Context, environment ...string) (*server, error) {
	socket, etcd, err := s.startEtcd(ctx, "annex-etcd")
	if err != nil {
		return nil, err
	}
	annex, err := s.startAnnex(ctx, annexName, []string{"--etcd-servers=unix://" + socket, "--enable-garbage-collector=false"}, environment...)
	if err != nil {
		return nil, err
	}
	annex.etcd = etcd
	return annex, annex.serve(ctx, records)
}

// startKubeAPIServer starts a kube-apiserver with the defaults, without controllers.
func (s *session) startKubeAPIServer(ctx context.Context) (*server, error) {
	socket, etcd, err := s.startEtcd(ctx, "kube-apiserver-etcd")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, peerName)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	cluster, err := maincluster.Start(ctx, maincluster.Options{
		Programs: maincluster.Programs{KubeAPIServer: s.program(peerName)}, Dir: dir,
		EtcdEndpoint: "unix://" + socket, Controllers: []string{maincluster.NoControllers},
	})
	if err != nil {
		return nil, err
	}
	s.atEnd(cluster.Stop)
	config, err := adminOf(cluster)
	if err != nil {
		return nil, err
	}
	peer := &server{
		name: peerName, etcd: etcd, prefix: "/registry/", config: config,
		objects: records, pids: func() []int { return []int{cluster.APIServerPID()} }, start: cluster.StartAPIServer, kill: cluster.KillAPIServer,
	}
	if err := peer.connect(); err != nil {
		return nil, err
	}
	return peer, peer.serve(ctx, records)
}

// adminOf returns a configuration with a client certificate, which servers verify for each request. annex's administrator
// has one too.
func adminOf(cluster *maincluster.Cluster) (*restclient.Config, error) {
	return cluster.ConfigFor("admin", "system:masters")
}

// connect makes the clients of the server's configuration.
func (s *server) connect() error {
	var err error
	if s.client, err = newClient(s.config); err != nil {
		return err
	}
	s.api, err = clients.New(s.config)
	return err
}

// as returns the server under another name, for figures of one of its states.
func (s *server) as(name string) *server {
	named := *s
	named.name = name
	return &named
}

// serve creates the CRDs of resources and the namespaces of their objects.
func (s *server) serve(ctx context.Context, resources ...resource) error {
	for _, r := range resources {
		if _, err := s.define(ctx, r.definition()); err != nil {
			return err
		}
	}
	for i := range namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		if _, err := s.api.Kube.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// define creates a CRD, unless it exists in data that are used again, and returns how long it took
// until its objects could be listed.
func (s *server) define(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (time.Duration, error) {
	began := time.Now()
	if _, err := s.api.CRDs().Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return 0, err
	}
	return s.firstList(ctx, resource{crd.Spec.Group, crd.Spec.Names.Plural, crd.Spec.Names.Kind}, began)
}

// firstList waits until a page of objects is listed.
func (s *server) firstList(ctx context.Context, r resource, began time.Time) (time.Duration, error) {
	return since(ctx, began, retryInterval, "the first list of "+r.name(), func() error {
		_, err := s.client.send(ctx, request{path: r.collection() + "?limit=500", accept: asJSON})
		return err
	})
}

// create creates the object i.
func (s *server) create(ctx context.Context, r resource, i, size int) (response, error) {
	body, err := r.object(i, size)
	if err != nil {
		return response{}, err
	}
	return s.client.send(ctx, request{method: "POST", path: r.parentOf(i), contentType: asJSON, body: body})
}

// usage returns the usage of all processes together.
func (s *server) usage() (total process.Usage, err error) {
	for _, pid := range s.pids() {
		usage, err := process.UsageOf(pid)
		if err != nil {
			return total, err
		}
		total.CPU += usage.CPU
		total.RSS += usage.RSS
		total.PeakRSS += usage.PeakRSS
	}
	return total, nil
}

// heap collects garbage and returns the bytes of the live heap.
func (s *server) heap(ctx context.Context) (int64, error) {
	received, err := s.client.send(ctx, request{path: "/debug/pprof/heap?gc=1&debug=1", keep: true})
	if err != nil {
		return 0, fmt.Errorf("read the heap of %s: %w", s.name, err)
	}
	return lineValue(string(received.body), "# HeapAlloc = ")
}

// restart kills the server as kill -9 does, and returns how long it took from the new process
// to the first successful list and to full watch caches.
func (s *server) restart(ctx context.Context) (listed, full time.Duration, err error) {
	s.kill()
	s.client.close()
	began := time.Now()
	ready := make(chan error, 1)
	go func() { ready <- s.start(ctx) }()
	listed, err = s.firstList(ctx, s.objects, began)
	if err := errors.Join(err, <-ready); err != nil {
		return 0, 0, err
	}
	full, err = s.cachesFull(ctx, began)
	return listed, full, err
}

// cachesFull waits until the watch cache was filled, by the metric of the code that all servers
// share.
func (s *server) cachesFull(ctx context.Context, began time.Time) (time.Duration, error) {
	metric := fmt.Sprintf("apiserver_watch_cache_initializations_total{group=%q,resource=%q} ", s.objects.group, s.objects.plural)
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	// annex creates a watch cache when it is needed, without objects only for a watch.
	go func() { _, _ = s.client.send(watchCtx, request{path: s.objects.collection() + "?watch=true"}) }()
	return since(ctx, began, 20*retryInterval, "full watch caches of "+s.name, func() error {
		received, err := s.client.send(ctx, request{path: "/metrics", keep: true})
		if err != nil {
			return err
		}
		_, err = lineValue(string(received.body), metric)
		return err
	})
}

// lineValue returns the number after a prefix that begins a line.
func lineValue(text, prefix string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, prefix); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("find %q in %d bytes: it is not there", prefix, len(text))
}

// startEtcd starts an etcd that does not wait for the disk, whose speed is not compared. It ends
// in an orderly way, so that its data can be used again.
func (s *session) startEtcd(ctx context.Context, name string) (socket string, connected *clientv3.Client, err error) {
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "client.sock")
	client, peer := "unix://"+socket, "unix://"+filepath.Join(dir, "peer.sock")
	command := exec.Command(s.program("etcd"), "--data-dir="+filepath.Join(dir, "data"), //nolint:noctx // it outlives the call
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", "--quota-backend-bytes="+strconv.Itoa(16<<30), "--log-level=fatal")
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return "", nil, fmt.Errorf("start etcd: %w", err)
	}
	s.atEnd(func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err == nil {
			_ = command.Wait() // it reports the signal
		}
		return nil
	})
	if connected, err = clientv3.New(clientv3.Config{Endpoints: []string{client}, Context: ctx}); err != nil {
		return "", nil, fmt.Errorf("connect to etcd: %w", err)
	}
	s.atEnd(connected.Close)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := connected.Get(ctx, "/"); err != nil {
		return "", nil, fmt.Errorf("wait for etcd: %w", err)
	}
	return socket, connected, nil
}
