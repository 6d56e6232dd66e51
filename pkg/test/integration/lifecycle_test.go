// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// restart stops the server and starts another on its data.
func (a *annex) restart(t *testing.T, flags ...string) *annex {
	t.Helper()
	a.Stop(t)
	return newAnnex(t, testserver.StartIn(t, a.DataDir, flags...))
}

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	expect.NoError(t, err)
	return content
}

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t).installCRD(t, newCRD(t, anySchema))
	before := widgets.annex
	widget := widgets.create(t, "v1", "a", "spec: {color: blue}")
	secret := expect.Create(t, before.Kube.CoreV1().Secrets(widgets.namespace), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "v"}})
	// annex registers its own APIServices again.
	expect.Delete(t, before.APIServices, "v1.coordination.k8s.io")
	pki := map[string][]byte{}
	files, err := os.ReadDir(filepath.Join(before.DataDir, "pki"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the folder of certificates: %v, %v", files, err)
	}
	for _, file := range files {
		pki[file.Name()] = readFile(t, before.DataDir, "pki", file.Name())
	}
	oldConfig, err := clientcmd.LoadFromFile(before.Kubeconfig)
	expect.NoError(t, err)

	after := before.restart(t)
	widgets.annex = after
	if diff := cmp.Diff(widget, widgets.get(t, "v1", "a")); diff != "" {
		t.Errorf("the custom resource (-before +after):\n%s", diff)
	}
	again := expect.Get(t, after.Kube.CoreV1().Secrets(widgets.namespace), "s")
	if diff := cmp.Diff(secret, again); diff != "" {
		t.Errorf("the secret (-before +after):\n%s", diff)
	}
	for name, content := range pki {
		if !bytes.Equal(content, readFile(t, after.DataDir, "pki", name)) {
			t.Errorf("pki/%s has changed", name)
		}
	}
	newConfig, err := clientcmd.LoadFromFile(after.Kubeconfig)
	expect.NoError(t, err)
	for _, cluster := range newConfig.Clusters {
		if after.URL == before.URL || cluster.Server != after.URL {
			t.Errorf("the kubeconfig has %s, the server listens at %s, before at %s", cluster.Server, after.URL, before.URL)
		}
		cluster.Server = before.URL
	}
	if diff := cmp.Diff(oldConfig, newConfig); diff != "" {
		t.Errorf("the kubeconfig without the port (-before +after):\n%s", diff)
	}
	if _, err := after.APIServices.Get(t.Context(), "v1.coordination.k8s.io", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestKubeconfigHasCurrentPort(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	_, port, _ := strings.Cut(freeport.ForTest(t), ":")
	moved := a.restart(t, "--secure-port="+port)
	if want := "https://127.0.0.1:" + port; moved.URL != want || moved.AnnexConfig.Host != want {
		t.Errorf("it serves at %s and its kubeconfig has %s, want %s", moved.URL, moved.AnnexConfig.Host, want)
	}
	moved.get(t, "/version").Expect(t, http.StatusOK, "with that kubeconfig")
}

// answers are the status codes of a path while a server starts, in order.
type answers struct {
	path  string
	codes []int
	err   error
}

// poll requests a path until the response has one of the codes.
func (a *answers) poll(ctx context.Context, annexHTTP *http.Client, url string, until ...int) {
	for {
		got, err := clients.Send(ctx, annexHTTP, http.MethodGet, url+a.path, "")
		if ctx.Err() != nil {
			a.err = fmt.Errorf("still %v, %w", a.codes, context.Cause(ctx))
			return
		}
		if err != nil {
			continue // the server does not listen yet
		}
		if n := len(a.codes); n == 0 || a.codes[n-1] != got.Code {
			a.codes = append(a.codes, got.Code)
		}
		for _, code := range until {
			if got.Code == code {
				return
			}
		}
	}
}

// While a server starts it returns 503 or 429, and never 404 for an existing object, which
// clients would treat as deleted.
func TestNoNotFoundBeforeReady(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "a", "spec: {}")
	widgets.annex.Stop(t)
	address := freeport.ForTest(t)
	_, port, _ := strings.Cut(address, ":")

	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	paths := map[string][]int{
		widgets.path("v1"):                    {http.StatusOK, http.StatusNotFound},
		widgets.path("v1") + "/a":             {http.StatusOK, http.StatusNotFound},
		"/apis/" + widgets.group + "/v1":      {http.StatusOK, http.StatusNotFound},
		"/api/v1/namespaces/default":          {http.StatusOK, http.StatusNotFound},
		"/apis/nothing.example.com/v1/things": {http.StatusNotFound},
	}
	polled := make(chan *answers, len(paths))
	annexHTTP := widgets.annex.httpClientAs(t, clientCertificate(widgets.annex.AnnexConfig.CertData, widgets.annex.AnnexConfig.KeyData))
	for path, until := range paths {
		go func() {
			a := &answers{path: path}
			a.poll(ctx, annexHTTP, "https://"+address, until...)
			polled <- a
		}()
	}
	started := newAnnex(t, testserver.StartIn(t, widgets.annex.DataDir, "--secure-port="+port))
	for range paths {
		a := <-polled
		if a.err != nil {
			t.Errorf("%s: %v", a.path, a.err)
			continue
		}
		last := a.codes[len(a.codes)-1]
		if last == http.StatusNotFound && !strings.Contains(a.path, "nothing") {
			t.Errorf("%s returned %v before it was found", a.path, a.codes)
		}
		for _, code := range a.codes[:len(a.codes)-1] {
			if code != http.StatusServiceUnavailable && code != http.StatusTooManyRequests {
				t.Errorf("%s returned %v, want 503 or 429 before the result", a.path, a.codes)
			}
		}
		t.Logf("%s: %v", a.path, a.codes)
	}
	// A ready server serves everything.
	for path, want := range map[string]int{widgets.path("v1"): http.StatusOK, "/readyz": http.StatusOK, "/apis/nothing.example.com/v1": http.StatusNotFound} {
		started.get(t, path).Expect(t, want, "once ready %s", path)
	}
}

func TestShutdownEndsWatches(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "a", "spec: {}")
	open := map[string]watch.Interface{}
	var err error
	open["widgets"], err = widgets.in("v1").Watch(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	open["namespaces"], err = widgets.annex.Kube.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	nextEvent(t, open["widgets"])
	nextEvent(t, open["namespaces"])

	started := time.Now()
	widgets.annex.Stop(t)
	t.Logf("stopped in %s with two open watches", time.Since(started).Round(time.Millisecond))
	for name, events := range open {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				t.Errorf("the watch of %s ended with %v", name, event.Object)
			}
		}
	}
}

// A watch from a revision that only the watch cache of the last process had returns 410 or
// all events since.
func TestWatchFromOldRevisionAfterRestart(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t).installCRD(t, newCRD(t, anySchema))
	seen := widgets.create(t, "v1", "seen", "spec: {}")
	widgets.create(t, "v1", "missed", "spec: {}")
	widgets.annex = widgets.annex.restart(t)

	events := widgets.watch(t, "v1", metav1.ListOptions{ResourceVersion: seen.GetResourceVersion()})
	switch event := nextEvent(t, events); event.Type {
	case watch.Added:
		if got := describe(event); got != "ADDED missed" {
			t.Errorf("the first event is %s", got)
		}
	case watch.Error:
		if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
			t.Errorf("the watch ended with %v", err)
		}
	default:
		t.Errorf("the first event is %s", describe(event))
	}
	list, err := widgets.in("v1").List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if before, after := resourceVersion(t, seen.GetResourceVersion()), resourceVersion(t, list.GetResourceVersion()); after <= before {
		t.Errorf("the resource version was %d and is %d after a restart", before, after)
	}
}

func resourceVersion(t *testing.T, version string) int {
	t.Helper()
	number, err := strconv.Atoi(version)
	expect.NoError(t, err)
	return number
}

// An informer continues through a restart, and has the current objects afterwards.
func TestInformerDuringRestart(t *testing.T) {
	t.Parallel()
	_, port, _ := strings.Cut(freeport.ForTest(t), ":")
	flag := "--secure-port=" + port
	widgets := startAnnex(t, flag).installCRD(t, newCRD(t, anySchema))
	for _, name := range []string{"kept", "removed"} {
		widgets.create(t, "v1", name, "spec: {}")
	}
	informer := widgets.startInformer(t)
	widgets.annex = widgets.annex.restart(t, flag)
	widgets.delete(t, "removed")
	widgets.create(t, "v1", "added", "spec: {}")
	informer.waitForNames(t, "added", "kept")
	// Handlers run after the store is updated.
	poll.UntilDone(t, "the handler receives one deletion", func() (bool, string) {
		deleted := informer.deleted.Load()
		return deleted == 1, fmt.Sprintf("%d deletions", deleted)
	})
}

// TestAnotherEtcd starts annex with an etcd that its data directory does not belong to.
func TestAnotherEtcd(t *testing.T) {
	t.Parallel()
	dataDir := t.TempDir()
	first, other := etcdtest.Start(t, nil), etcdtest.Start(t, nil)
	external := func(etcd *embeddedetcd.Server) string { return "--etcd-servers=" + etcd.Endpoint() }
	// endpoints starts annex, and returns the cell of its etcd.
	endpoints := func(flags ...string) string {
		t.Helper()
		a := newAnnex(t, testserver.StartIn(t, dataDir, flags...))
		defer a.Stop(t)
		store, err := a.Stores().Get(t.Context(), "default", metav1.GetOptions{})
		expect.NoError(t, err)
		if store.Spec.Etcd == nil {
			return "embedded"
		}
		return store.Spec.Etcd.Endpoints[0]
	}
	refused := func(want string, flags ...string) (id string) {
		t.Helper()
		_, err := testserver.TryStartIn(t, dataDir, flags...)
		expect.Error(t, err, "--data-dir "+dataDir, want, "see --leave-etcd: the ID is ")
		_, id, _ = strings.Cut(err.Error(), "the ID is ")
		return id
	}
	expect.Equal(t, first.Endpoint(), endpoints(external(first)), "the first etcd")
	id := refused("--etcd-servers is not set: set it")
	refused("--etcd-servers is not set: set it", "--leave-etcd=of-another")
	if _, err := os.Stat(filepath.Join(dataDir, "etcd")); !os.IsNotExist(err) {
		t.Errorf("annex created an embedded etcd: %v", err)
	}
	refused(first.Endpoint()+", which --etcd-servers and --etcd-prefix do not lead to", external(other))
	refused("--etcd-prefix", external(first), "--etcd-prefix=/elsewhere")
	if found, err := other.Client().Get(t.Context(), "/", clientv3.WithPrefix()); err != nil || found.Count != 0 {
		t.Errorf("the other etcd has %v, %v", found, err)
	}
	expect.Equal(t, first.Endpoint(), endpoints(external(first)), "the etcd as before")
	expect.Equal(t, "embedded", endpoints("--leave-etcd="+id), "the embedded etcd, on purpose")
	expect.Equal(t, "embedded", endpoints(), "the embedded etcd")
	id = refused("the embedded etcd, --etcd-servers names another one: remove it", external(first), "--leave-etcd="+id)
	expect.NoError(t, os.RemoveAll(filepath.Join(dataDir, "etcd")))
	refused("which is not what " + filepath.Join(dataDir, "etcd") + " has")
	expect.Equal(t, first.Endpoint(), endpoints(external(first), "--leave-etcd="+id), "the first etcd again")
}

// TestFullDisk fills the volume of the embedded etcd and frees it, twice.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	disk := func(o *options.Options) {
		o.Etcd.Disk = func(string) (int64, int64, error) { return free.Load(), 4 << 30, nil }
	}
	free.Store(3 << 30)
	dataDir := t.TempDir()
	start := func() *annex { return newAnnex(t, testserver.StartWith(t, disk, dataDir)) }
	a := start()
	widgets := a.installCRD(t, newCRD(t, anySchema))
	for _, round := range []string{"first", "second"} {
		widgets.create(t, "v1", round, "spec: {}")
		widgets.create(t, "v1", round+"-deleted", "spec: {}")
		free.Store(200 << 20)
		poll.Until(t, "writes are refused", func() string {
			_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "refused-"+rand.String(10), "spec: {}"), metav1.CreateOptions{})
			if !isStoreFull(err) || !strings.Contains(err.Error(), "the volume of --data-dir is almost full") {
				return fmt.Sprintf("a create: %v", err)
			}
			return ""
		})
		store := a.waitForStore(t, "default", metav1.ConditionFalse, "NoSpace")
		expect.Equal(t, "1920Mi", store.Status.Quota.String(), "the quota")
		if round == "second" {
			a.Stop(t)
			a = start()
			widgets = widgets.on(a)
		}
		if _, err := widgets.in("v1").Get(t.Context(), round, metav1.GetOptions{}); err != nil {
			t.Errorf("read: %v", err)
		}
		widgets.delete(t, round+"-deleted")
		free.Store(3 << 30)
		poll.Until(t, "writes are accepted", func() string {
			_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "after-"+round, "spec: {}"), metav1.CreateOptions{})
			if err != nil {
				return err.Error()
			}
			return ""
		})
		a.waitForStore(t, "default", metav1.ConditionTrue, "")
	}
}

func isStoreFull(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInsufficientStorage
}

// TestEtcdClientsDoNotWriteToStderr fails a request to etcd: upstream's clients wrote JSON to
// stderr for it, regardless of the logging flags.
func TestEtcdClientsDoNotWriteToStderr(t *testing.T) {
	t.Parallel()
	dataDir := t.TempDir()
	p := startProcess(t, dataDir, "--etcd-servers="+etcdtest.Start(t, nil).Endpoint(), "--storage-compression=None")
	widgets := clientsOf(t, p, dataDir).installCRD(t, newCRD(t, anySchema))
	tooLarge := strings.Repeat("x", 1600<<10) // the default limit of etcd is 1.5 MiB
	object := widgets.object(t, "v1", "large", fmt.Sprintf(`{"spec":{"text":%q}}`, tooLarge))
	if _, err := widgets.in("v1").Create(t.Context(), object, metav1.CreateOptions{}); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Fatalf("etcd accepted it, or refused it for another reason: %v", err)
	}
	if strings.Contains(p.Stderr(), "etcd-client") {
		t.Errorf("an etcd client wrote to stderr:\n%s", p.Stderr())
	}
}

// TestShutdownDuringStart sends SIGTERM before annex is ready.
func TestShutdownDuringStart(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"lock", "pki", "etcd/member", "admin.kubeconfig"} {
		t.Run(strings.ReplaceAll(moment, "/", "-"), func(t *testing.T) {
			t.Parallel()
			dataDir := filepath.Join(t.TempDir(), "data")
			p := startProcess(t, dataDir)
			poll.UntilNoError(t, moment+" is there", func() error {
				_, err := os.Stat(filepath.Join(dataDir, moment))
				return err
			})
			expect.Succeeds(t, p.Stop(poll.Timeout))
			if p.Stderr() != "" {
				t.Errorf("stderr is not empty:\n%s", p.Stderr())
			}
		})
	}
}
