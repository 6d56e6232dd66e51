// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo runs a main cluster (argument main-cluster), or a main cluster with annex and
// a tour of kubectl commands (argument demo). It removes everything when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/process"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	cancel()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// etcd logs in this process.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if len(args) == 0 {
		return errors.New("the argument must be main-cluster or demo")
	}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	once := set.Bool("once", false, "End after the tour.")
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "main-cluster":
		return withCluster(ctx, func(cluster *maincluster.Cluster) error {
			fmt.Printf("It has no nodes: objects are kept and looked after, but no pod ever runs.\nIts logs and certificates are in %s.\nCtrl-C stops it and removes everything.\n", cluster.Dir)
			return waitForEnd(ctx, *once)
		})
	case "demo":
		return withCluster(ctx, func(cluster *maincluster.Cluster) error { return runDemo(ctx, cluster, *once) })
	default:
		return fmt.Errorf("unknown argument %q: it must be main-cluster or demo", args[0])
	}
}

// withCluster runs a main cluster during use.
func withCluster(ctx context.Context, use func(*maincluster.Cluster) error) (err error) {
	began := time.Now()
	fmt.Println("starting a main cluster: etcd, kube-apiserver, kube-controller-manager ...")
	cluster, err := maincluster.Start(ctx, maincluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	fmt.Printf("the main cluster is ready at %s after %.1f s, use it with: export KUBECONFIG=%s\n", cluster.URL, time.Since(began).Seconds(), cluster.Kubeconfig)
	return use(cluster)
}

func waitForEnd(ctx context.Context, once bool) error {
	if once {
		return nil
	}
	<-ctx.Done()
	return nil
}

// artifacts/examples use this group and namespace.
const group, namespace = "example.com", "annex-examples"

// orders have objects in the main cluster before annex gets them.
var orders = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "orders"}

// runDemo puts annex behind the cluster and shows it.
func runDemo(ctx context.Context, cluster *maincluster.Cluster, once bool) (err error) {
	began := time.Now()
	fmt.Println("\nstarting annex behind it, with the service account and rights of artifacts/deploy ...")
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, balancer.Close()) }()
	installation, err := annextest.Install(ctx, cluster, balancer)
	if err != nil {
		return err
	}
	dataDir := filepath.Join(cluster.Dir, "annex")
	annex, err := installation.LaunchProcess(ctx, dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, annex.Shutdown()) }()
	fmt.Printf("annex is ready at %s after %.1f s\n", annex.URL, time.Since(began).Seconds())
	if err := installation.WaitHosting(ctx); err != nil {
		return fmt.Errorf("%w\nstderr of annex:\n%s", err, annex.Process.Stderr())
	}
	t := &tour{cluster: cluster, annex: annex}
	if t.main, err = clients.New(cluster.Config); err != nil {
		return fmt.Errorf("create the clients of the main cluster: %w", err)
	}
	if t.kubectl, err = process.Bin(ctx, "kubectl"); err != nil {
		return err
	}
	if t.root, err = process.ModuleRoot(ctx); err != nil {
		return err
	}
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("%w\nstderr of annex:\n%s", err, annex.Process.Stderr())
	}
	if !once {
		fmt.Printf(`
Go on in another shell; Ctrl-C here stops everything and removes it.
  use the main cluster:   export KUBECONFIG=%s
  use annex directly:     export KUBECONFIG=%s
  stop annex alone:       kill %d
`, cluster.Kubeconfig, annex.Kubeconfig, annex.Process.PID())
	}
	return waitForEnd(ctx, once)
}

// etcdKeys lists keys in annex's etcd.
func etcdKeys(ctx context.Context, dataDir, prefix string) ([]string, error) {
	annexEtcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dataDir, "etcd", "client.sock")}, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to annex's etcd: %w", err)
	}
	defer annexEtcd.Close()
	found, err := annexEtcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the keys below %s in annex's etcd: %w", prefix, err)
	}
	keys := make([]string, 0, len(found.Kvs))
	for _, pair := range found.Kvs {
		keys = append(keys, string(pair.Key))
	}
	return keys, nil
}

// tour shows annex with commands that a user would type.
type tour struct {
	cluster *maincluster.Cluster
	annex   *annextest.Annex
	main    *clients.Clients
	kubectl string
	root    string // of the repository, where the examples are
}

func (t *tour) run(ctx context.Context) error {
	steps := []func(context.Context) error{t.showHosting, t.takeOver, t.useWidgets, t.showEtcds, t.moveOrders}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func explain(text string) { fmt.Printf("\n# %s\n", text) }

// do prints a command and runs it, split at spaces.
func (t *tour) do(ctx context.Context, arguments string) error {
	fmt.Printf("$ kubectl %s\n", arguments)
	command := exec.CommandContext(ctx, t.kubectl, strings.Fields(arguments)...)
	command.Dir = t.root
	command.Env = append(os.Environ(), "KUBECONFIG="+t.cluster.Kubeconfig, "KUBECACHEDIR="+t.cluster.Dir+"/kubectl-cache",
		"PATH="+filepath.Join(t.root, "bin")+":"+os.Getenv("PATH")) // where kubectl finds kubectl-annex
	command.Stdout, command.Stderr = os.Stdout, os.Stdout
	if err := command.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", arguments, err)
	}
	return nil
}

func (t *tour) all(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		if err := t.do(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) showHosting(ctx context.Context) error {
	if err := t.waitForDiscovery(ctx); err != nil {
		return err
	}
	explain("The main cluster proxies annex's own group to it.")
	return t.all(ctx, "get apiservices v1alpha1.hosting.annex.dev", "get stores")
}

// waitForDiscovery waits until kubectl can find annex's kinds. kube-apiserver adds them to its
// discovery after it proxies requests for them.
func (t *tour) waitForDiscovery(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		var lists []*metav1.APIResourceList
		_, lists, last = t.main.Kube.Discovery().ServerGroupsAndResources()
		return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
			return list.GroupVersion == "hosting.annex.dev/v1alpha1" && len(list.APIResources) > 0
		}), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the main cluster's discovery has annex's kinds: %w", errors.Join(err, last))
	}
	return nil
}

func (t *tour) takeOver(ctx context.Context) error {
	explain("A CRD of the main cluster, as any chart installs it.")
	if err := t.all(ctx,
		"apply -f artifacts/examples/00-namespace.yaml -f artifacts/examples/30-customresourcedefinition.yaml",
		"wait --for=condition=Established crd/widgets."+group,
		"get apiservices v1."+group,
	); err != nil {
		return err
	}
	explain("Move the group, which has no objects yet, to annex.")
	return t.all(ctx, "annex move "+group, "get apiservices -l annex.dev/published-by", "get hostedresources")
}

func (t *tour) useWidgets(ctx context.Context) error {
	explain("Use it as before.")
	return t.all(ctx,
		"apply -f artifacts/examples/40-widget.yaml",
		"get widgets --all-namespaces",
		"explain widgets.spec.color",
		"wait --for=jsonpath={.status.objects}=1 hostedresource/widgets."+group,
		"get hostedresources",
	)
}

// showEtcds shows in which etcd the objects are.
func (t *tour) showEtcds(ctx context.Context) error {
	const mainPrefix, annexPrefix = "/registry/" + group + "/", "/annex/" + group + "/"
	mainKeys, err := t.cluster.EtcdKeys(ctx, mainPrefix)
	if err != nil {
		return err
	}
	annexKeys, err := etcdKeys(ctx, t.annex.DataDir, annexPrefix)
	if err != nil {
		return err
	}
	explain("Where are the objects?")
	fmt.Printf("below %s in the main cluster's etcd: %d\n", mainPrefix, len(mainKeys))
	fmt.Printf("below %s in annex's etcd: %d\n", annexPrefix, len(annexKeys))
	for _, key := range annexKeys {
		fmt.Println("  " + key)
	}
	if len(mainKeys) > 0 || len(annexKeys) == 0 {
		return errors.New("the objects are not where they should be")
	}
	return nil
}

// moveOrders moves a group with objects into annex and back, while clients write them.
func (t *tour) moveOrders(ctx context.Context) error {
	explain(fmt.Sprintf("A group with %d objects in the main cluster's etcd, which %d clients write all the time.", writers*objectsPerWriter, writers))
	if _, err := t.main.CRDs().Create(ctx, crds.New(orders.Group, orders.Resource, orders.Version), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the CRD of orders: %w", err)
	}
	if err := t.do(ctx, "wait --for=condition=Established crd/orders."+orders.Group); err != nil {
		return err
	}
	load, err := startLoad(ctx, t.main.Dynamic.Resource(orders).Namespace(namespace))
	if err != nil {
		return err
	}
	defer load.end()
	for _, step := range []struct{ command, text string }{
		{"annex move --objects-per-second=100 ", "Move it to annex, slowly enough to watch."},
		{"annex rollback ", "Move it back, with everything written since."},
	} {
		explain(step.text)
		if err := t.all(ctx, step.command+orders.Group, "get apiservices v1."+orders.Group); err != nil {
			return err
		}
		if err := load.report(ctx); err != nil {
			return err
		}
	}
	return nil
}
