// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
)

const (
	// placed HostedResources are placed on placedOn Stores.
	placed, placedOn = 1000, 20
	// placer is the name of the scheduler.
	placer = "bench"
)

// placement measures how long a scheduler takes to place all waiting HostedResources.
func (b *bench) placement(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dataDir := filepath.Join(b.dir, "place")
	socket := filepath.Join(b.dir, "stores.socket")
	annex, _, err := b.start(ctx, dataDir, "--store-endpoints=unix://"+socket)
	if err != nil {
		return err
	}
	defer annex.Kill()
	annexClients, err := connect(annex)
	if err != nil {
		return err
	}
	etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Config{Dir: filepath.Join(b.dir, "stores"), SocketPath: socket})
	if err != nil {
		return err
	}
	defer etcd.Close()
	if err := makeStores(ctx, annexClients.Stores(), "unix://"+socket); err != nil {
		return err
	}
	if err := makeWaiting(ctx, annexClients.HostedResources()); err != nil {
		return err
	}

	// A placed resource is deleted from this watch.
	waiting, err := annexClients.HostedResources().Watch(ctx, metav1.ListOptions{FieldSelector: "spec.storeName="})
	if err != nil {
		return err
	}
	defer waiting.Stop()

	kubeconfig := filepath.Join(dataDir, "admin.kubeconfig")
	scheduler := exec.CommandContext(ctx, b.binary, "scheduler", "--kubeconfig="+kubeconfig, "--scheduler-name="+placer)
	scheduler.Stderr = os.Stderr
	out, err := scheduler.StdoutPipe()
	if err != nil {
		return err
	}
	if err := scheduler.Start(); err != nil {
		return err
	}
	defer func() {
		cancel() // which kills it
		_ = scheduler.Wait()
	}()
	// It prints a line when it becomes the leader.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for annex scheduler to begin: %w", err)
	}
	began := time.Now()
	if err := waitPlaced(ctx, waiting); err != nil {
		return err
	}
	b.add(figure{
		name:     fmt.Sprintf("%d HostedResources placed on %d Stores by a scheduler that finds them waiting", placed, placedOn),
		measured: time.Since(began).Seconds(), target: 2, unit: "s",
	})
	return nil
}

// waitPlaced waits until all have been deleted from the watch.
func waitPlaced(ctx context.Context, waiting watch.Interface) error {
	for left := placed; left > 0; {
		select {
		case event, open := <-waiting.ResultChan():
			if !open || event.Type == watch.Error {
				return fmt.Errorf("the watch ended with %d left to place: %v", left, event.Object)
			}
			if event.Type == watch.Deleted {
				left--
			}
		case <-ctx.Done():
			return fmt.Errorf("%d are left to place: %w", left, context.Cause(ctx))
		}
	}
	return nil
}

// makeStores creates Stores that share an etcd, and waits until all are ready.
func makeStores(ctx context.Context, annexStores hostingclient.StoreInterface, endpoint string) error {
	for i := range placedOn {
		_, err := annexStores.Create(ctx, &hostingv1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("store-%02d", i), Labels: map[string]string{placer: "true"}},
			Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
				Endpoints: []string{endpoint}, KeyPrefix: fmt.Sprintf("/store-%02d", i),
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return poll(ctx, "all Stores are ready", func() (string, error) {
		stores, err := annexStores.List(ctx, metav1.ListOptions{LabelSelector: placer})
		if err != nil {
			return "", err
		}
		for _, store := range stores.Items {
			if !meta.IsStatusConditionTrue(store.Status.Conditions, hostingv1alpha1.StoreReady) {
				return fmt.Sprintf("%s: %+v", store.Name, store.Status.Conditions), nil
			}
		}
		return "", nil
	})
}

// makeWaiting creates HostedResources that wait for the scheduler, of 25 groups, every
// third of them heavy.
func makeWaiting(ctx context.Context, annexHostedResources hostingclient.HostedResourceInterface) error {
	return concurrently(placed, func(i int) error {
		hosted := &hostingv1alpha1.HostedResource{
			ObjectMeta: metav1.ObjectMeta{Name: definition(i).Name},
			Spec: hostingv1alpha1.HostedResourceSpec{
				SchedulerName: placer,
				StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{placer: "true"}},
			},
		}
		if i%3 == 0 {
			hosted.Spec.Requests = hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceObjects: resource.MustParse("100k")}
		}
		_, err := annexHostedResources.Create(ctx, hosted, metav1.CreateOptions{})
		return err
	})
}

// poll calls left until it returns "".
func poll(ctx context.Context, what string, left func() (string, error)) error {
	for {
		waiting, err := left()
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s, last seen: %s", what, waiting)
		case <-time.After(25 * time.Millisecond):
		}
	}
}
