// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
)

const (
	// slowBy is the delay of the slow Store, in each direction.
	slowBy = 250 * time.Millisecond
	// waiters are the clients of the slow Store. Each sends its requests once per
	// interval, so that the load is the same with and without the delay.
	waiters, waiterInterval = 32, 2500 * time.Millisecond
	// slowRounds is how often slowRequests requests are timed with, and without, the delay.
	slowRounds, slowRequests = 8, 450
)

// slowStore measures requests for a resource while other clients wait for the slow Store
// of another resource, and while that Store is not slow.
func (b *bench) slowStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	annex, _, err := b.start(ctx, filepath.Join(b.dir, "slow"), "--store-endpoints=unix://"+filepath.Join(b.dir, "quick.socket"))
	if err != nil {
		return err
	}
	defer annex.Kill()
	annexClients, err := connect(annex)
	if err != nil {
		return err
	}
	var slowed *faultproxy.Proxy
	resources := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for i, name := range []string{"quick", "slow"} {
		socket := filepath.Join(b.dir, name+".socket")
		etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Config{Dir: filepath.Join(b.dir, name+"-etcd"), SocketPath: socket})
		if err != nil {
			return err
		}
		defer etcd.Close()
		endpoint := "unix://" + socket
		if name == "slow" {
			if slowed, err = faultproxy.New(ctx, socket); err != nil {
				return err
			}
			defer slowed.Close()
			endpoint = "http://" + slowed.Address()
		}
		if resources[name], err = resourceOn(ctx, annexClients, name, endpoint, i); err != nil {
			return err
		}
	}
	annexREST := annexClients.Kube.Discovery().RESTClient()
	var quick, slow []time.Duration
	for round := range slowRounds {
		for delay, took := range map[time.Duration]*[]time.Duration{0: &quick, slowBy: &slow} {
			slowed.SetDelay(delay)
			number := 2*round + min(int(delay), 1)
			err := besideWaiters(ctx, annexREST, resources["slow"], number, func() error {
				these, err := timeRequests(ctx, annexREST, resources["quick"], number)
				*took = append(*took, these...)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	b.addSlow(quick, slow)
	return nil
}

func (b *bench) addSlow(quick, slow []time.Duration) {
	p99 := func(all []time.Duration) float64 {
		slices.Sort(all)
		return milliseconds(all[len(all)*99/100])
	}
	b.add(figure{name: "requests for a resource while clients of another's Store do not wait, p99", measured: p99(quick), unit: "ms"})
	b.add(figure{name: fmt.Sprintf("the same while these clients wait for a Store with a delay of %s, p99", slowBy), measured: p99(slow), unit: "ms"})
	b.add(figure{name: "beside a slow Store / beside a quick Store, p99", measured: p99(slow) / p99(quick), target: 1.2, unit: "x"})
}

// resourceOn creates a Store and a CRD whose objects are on it.
func resourceOn(ctx context.Context, c *clients.Clients, store, endpoint string, i int) (*apiextensionsv1.CustomResourceDefinition, error) {
	_, err := c.Stores().Create(ctx, &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: store},
		Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: []string{endpoint}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	err = poll(ctx, "Store "+store+" is ready", func() (string, error) {
		made, err := c.Stores().Get(ctx, store, metav1.GetOptions{})
		if err != nil || meta.IsStatusConditionTrue(made.Status.Conditions, hostingv1alpha1.StoreReady) {
			return "", err
		}
		return fmt.Sprintf("%+v", made.Status.Conditions), nil
	})
	if err != nil {
		return nil, err
	}
	_, err = c.HostedResources().Create(ctx, &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: definition(i).Name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: store},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	crd, err := c.CRDs().Create(ctx, definition(i), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return crd, waitServed(ctx, c, crd, noRetries)
}

// timeRequests measures creates, reads and short lists, one after the other.
func timeRequests(ctx context.Context, annexREST restclient.Interface, crd *apiextensionsv1.CustomResourceDefinition, round int) ([]time.Duration, error) {
	var all []time.Duration
	for i := range slowRequests / 3 {
		took, err := requestThing(ctx, annexREST, crd, 1000*round+i)
		if err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return all, nil
}

// requestThing creates an object, reads it, and lists a few.
func requestThing(ctx context.Context, annexREST restclient.Interface, crd *apiextensionsv1.CustomResourceDefinition, i int) ([]time.Duration, error) {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/default/%s", crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Plural)
	body, err := thing(crd, i)
	if err != nil {
		return nil, err
	}
	var all []time.Duration
	for _, request := range []*restclient.Request{
		annexREST.Post().AbsPath(path).Body(body),
		annexREST.Get().AbsPath(path, fmt.Sprint("thing-", i)),
		annexREST.Get().AbsPath(path).Param("limit", "5"),
	} {
		began := time.Now()
		answer, err := request.MaxRetries(noRetries).Stream(ctx)
		if err == nil {
			_, err = io.Copy(io.Discard, answer)
			err = errors.Join(err, answer.Close())
		}
		if err != nil {
			return nil, err
		}
		all = append(all, time.Since(began))
	}
	return all, nil
}

// besideWaiters calls measure while other clients use another resource.
func besideWaiters(ctx context.Context, annexREST restclient.Interface, crd *apiextensionsv1.CustomResourceDefinition, round int, measure func() error) error {
	waiting, cancel := context.WithCancel(ctx)
	errs := make([]error, waiters)
	var running sync.WaitGroup
	for waiter := range waiters {
		running.Go(func() {
			// Start at different times.
			next := time.NewTimer(waiterInterval * time.Duration(waiter) / waiters)
			defer next.Stop()
			for i := 0; ; i++ {
				select {
				case <-waiting.Done():
					return
				case <-next.C:
					next.Reset(waiterInterval)
				}
				if _, err := requestThing(waiting, annexREST, crd, 1_000_000*(round+1)+1000*waiter+i); err != nil && waiting.Err() == nil {
					errs[waiter] = err
					return
				}
			}
		})
	}
	err := measure()
	cancel()
	running.Wait()
	return errors.Join(err, errors.Join(errs...))
}
