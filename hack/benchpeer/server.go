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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	// startLimit bounds a start, caches full included.
	startLimit = 15 * time.Minute
	// retryInterval is the time between two attempts of what is not yet served.
	retryInterval = 5 * time.Millisecond
)

// server is an API server with an etcd of its own, both processes of this machine.
type server struct {
	name   string
	client *client
	config *restclient.Config
	etcd   *etcd
	// objects begins the keys of the objects in etcd.
	objects string

	pid   func() int
	start func(context.Context) error // returns when it is ready
	kill  func()
}

// programs are the paths of what is measured.
type programs struct{ annex, kubeAPIServer, etcd string }

// startAnnex starts a standalone annex. Garbage collection is switched off, because
// kube-apiserver leaves it to another process.
func startAnnex(ctx context.Context, p programs, dir string, environment ...string) (*server, error) {
	database, err := startEtcd(ctx, p.etcd, dir)
	if err != nil {
		return nil, err
	}
	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, errors.Join(err, database.stop())
	}
	var running *process.Annex
	s := &server{name: annexName, etcd: database, objects: "/annex/" + group + "/" + plural + "/"}
	s.pid = func() int { return running.PID() }
	s.kill = func() {
		if running != nil {
			running.Kill()
		}
	}
	s.start = func(ctx context.Context) error {
		command := exec.Command(p.annex, "serve", "--data-dir="+filepath.Join(dir, "annex"), //nolint:noctx // it outlives the call
			"--secure-port="+strconv.Itoa(port), "--etcd-servers="+database.endpoint, "--enable-garbage-collector=false")
		command.Env = append(os.Environ(), environment...)
		var err error
		if running, err = process.StartCommand(command); err != nil {
			return err
		}
		return running.WaitReady(ctx)
	}
	err = s.start(ctx)
	if err == nil {
		s.config, err = running.Config()
	}
	return s, s.prepare(ctx, err)
}

// startKubeAPIServer starts a kube-apiserver with the defaults, without controllers.
func startKubeAPIServer(ctx context.Context, p programs, dir string) (*server, error) {
	database, err := startEtcd(ctx, p.etcd, dir)
	if err != nil {
		return nil, err
	}
	cluster, err := maincluster.Start(ctx, maincluster.Options{
		Programs: maincluster.Programs{KubeAPIServer: p.kubeAPIServer}, Dir: dir,
		EtcdEndpoint: database.endpoint, Controllers: []string{maincluster.NoControllers},
	})
	if err != nil {
		return nil, errors.Join(err, database.stop())
	}
	s := &server{
		name: peerName, etcd: database, objects: "/registry/" + group + "/" + plural + "/",
		pid: cluster.APIServerPID, start: cluster.StartAPIServer, kill: cluster.KillAPIServer, config: cluster.Config,
	}
	return s, s.prepare(ctx, nil)
}

// prepare creates what objects need, and stops the server after an error.
func (s *server) prepare(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err == nil {
		s.client, err = newClient(s.config)
	}
	if err == nil {
		err = s.createParents(ctx)
	}
	if err == nil {
		_, err = s.firstList(ctx, time.Now())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", s.name, err), s.stop())
	}
	return nil
}

// createParents creates the CRD and the namespaces, unless they exist in data that are used
// again.
func (s *server) createParents(ctx context.Context) error {
	admin, err := clients.New(s.config)
	if err != nil {
		return err
	}
	if _, err := admin.CRDs().Create(ctx, definition(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for i := range namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		if _, err := admin.Kube.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// stop ends the server and its etcd.
func (s *server) stop() error {
	s.kill()
	return s.etcd.stop()
}

func (s *server) usage() (process.Usage, error) { return process.UsageOf(s.pid()) }

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
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s.kill()
	s.client.close()
	began := time.Now()
	ready := make(chan error, 1)
	go func() { ready <- s.start(ctx) }()
	if listed, err = s.firstList(ctx, began); err != nil {
		return 0, 0, errors.Join(err, <-ready)
	}
	if err := <-ready; err != nil {
		return 0, 0, err
	}
	full, err = s.cachesFull(ctx, began)
	return listed, full, err
}

// firstList waits until a page of objects is listed.
func (s *server) firstList(ctx context.Context, began time.Time) (time.Duration, error) {
	return since(ctx, began, retryInterval, "the first list of "+s.name, func() error {
		_, err := s.client.send(ctx, request{path: collection + "?limit=500", accept: asJSON})
		return err
	})
}

// cachesFull waits until the watch cache was filled, by the metric of the code that all servers
// share.
func (s *server) cachesFull(ctx context.Context, began time.Time) (time.Duration, error) {
	const metric = `apiserver_watch_cache_initializations_total{group="` + group + `",resource="` + plural + `"} `
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	// annex creates a watch cache when it is needed, without objects only for a watch.
	go func() { _, _ = s.client.send(watchCtx, request{path: collection + "?watch=true"}) }()
	return since(ctx, began, 20*retryInterval, "full watch caches of "+s.name, func() error {
		received, err := s.client.send(ctx, request{path: "/metrics", keep: true})
		if err != nil {
			return err
		}
		_, err = lineValue(string(received.body), metric)
		return err
	})
}

// since calls do until it succeeds, and returns the time since began.
func since(ctx context.Context, began time.Time, interval time.Duration, what string, do func() error) (time.Duration, error) {
	for {
		err := do()
		if err == nil {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for %s: %w, last error: %w", what, context.Cause(ctx), err)
		case <-time.After(interval):
		}
	}
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

// etcd is a process of the etcd program.
type etcd struct {
	endpoint string
	client   *clientv3.Client
	command  *exec.Cmd
}

// startEtcd starts an etcd that does not wait for the disk, whose speed is not compared.
func startEtcd(ctx context.Context, binary, dir string) (*etcd, error) {
	client, peer := "unix://"+filepath.Join(dir, "client.sock"), "unix://"+filepath.Join(dir, "peer.sock")
	command := exec.Command(binary, "--data-dir="+filepath.Join(dir, "etcd"), //nolint:noctx // it outlives the call
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", "--quota-backend-bytes="+strconv.Itoa(16<<30), "--log-level=fatal")
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	e := &etcd{endpoint: client, command: command}
	var err error
	if e.client, err = clientv3.New(clientv3.Config{Endpoints: []string{client}, Context: ctx}); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to etcd: %w", err), e.stop())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := e.client.Get(ctx, "/"); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for etcd: %w", err), e.stop())
	}
	return e, nil
}

// stop ends etcd in an orderly way, so that its data can be used again.
func (e *etcd) stop() error {
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	if signalErr := e.command.Process.Signal(syscall.SIGTERM); signalErr == nil {
		_ = e.command.Wait() // it reports the signal
	}
	return err
}
