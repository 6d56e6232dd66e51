// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	// fields is the number of fields of a CRD.
	fields = 20
	// creators is the number of concurrent creates when single ones are not timed.
	creators = 8
	// probes is the number of CRDs that are timed one by one.
	probes = 11
	// Without retries, clients poll themselves. By default, client-go waits for the
	// seconds in Retry-After.
	noRetries, usualRetries = 0, 10
)

func connect(annex *process.Annex) (*clients.Clients, error) {
	config, err := annex.Config()
	if err != nil {
		return nil, err
	}
	return clients.New(config)
}

func (b *bench) fewCRDs(ctx context.Context) error {
	dataDir := filepath.Join(b.dir, "few")
	annex, _, err := b.start(ctx, dataDir)
	if err != nil {
		return err
	}
	if annex, err = b.addServing(ctx, annex, dataDir); annex != nil {
		annex.Kill()
	}
	return err
}

// addServing times CRDs one by one, then restarts. It returns what runs at the end.
func (b *bench) addServing(ctx context.Context, annex *process.Annex, dataDir string) (*process.Annex, error) {
	annexClients, err := connect(annex)
	if err != nil {
		return annex, err
	}
	var impatient, patient, placed []time.Duration
	for i := range probes {
		for number, probe := range []struct {
			took      *[]time.Duration
			retries   int
			inAdvance bool
		}{{&impatient, noRetries, false}, {&patient, usualRetries, false}, {&placed, noRetries, true}} {
			if probe.inAdvance {
				if err := place(ctx, annexClients, 3*i+number); err != nil {
					return annex, err
				}
			}
			served, err := timeCRD(ctx, annexClients, 3*i+number, probe.retries)
			if err != nil {
				return annex, err
			}
			*probe.took = append(*probe.took, served)
		}
	}
	b.add(figure{name: "CRD create to its objects can be listed, median", measured: milliseconds(median(impatient)), target: 50, unit: "ms"})
	b.add(figure{name: "CRD create to its objects can be listed, slowest", measured: milliseconds(slices.Max(impatient)), unit: "ms"})
	b.add(figure{name: "the same for a client that obeys Retry-After, median", measured: milliseconds(median(patient)), unit: "ms"})
	b.add(figure{name: "the same for one that is already placed on its Store, median", measured: milliseconds(median(placed)), unit: "ms"})

	annex, restart, err := b.restarts(ctx, annex, dataDir)
	if err != nil {
		return nil, err
	}
	b.addStart("process start to ready, after kill -9", restart)
	return annex, nil
}

func (b *bench) manyCRDs(ctx context.Context) error {
	dataDir := filepath.Join(b.dir, "many")
	annex, _, err := b.start(ctx, dataDir)
	if err != nil {
		return err
	}
	if annex, err = b.addMany(ctx, annex, dataDir); annex != nil {
		annex.Kill()
	}
	return err
}

func (b *bench) addMany(ctx context.Context, annex *process.Annex, dataDir string) (*process.Annex, error) {
	annexClients, err := connect(annex)
	if err != nil {
		return annex, err
	}
	began := time.Now()
	if err := createMany(ctx, annexClients, manyCRDs); err != nil {
		return annex, err
	}
	b.add(figure{name: fmt.Sprintf("%d CRDs created and served", manyCRDs), measured: time.Since(began).Seconds(), unit: "s"})
	name := fmt.Sprintf("idle RSS, %d CRDs, as created", manyCRDs)
	if err := b.addMemory(ctx, annex, name, 0); err != nil {
		return annex, err
	}
	annex, restart, err := b.restarts(ctx, annex, dataDir)
	if err != nil {
		return nil, err
	}
	b.addStart(fmt.Sprintf("process start to ready, after kill -9, %d CRDs", manyCRDs), restart)
	return annex, b.addMemory(ctx, annex, fmt.Sprintf("idle RSS, %d CRDs, after a start", manyCRDs), 0)
}

// place creates a CRD's HostedResource, on the Store default, before the CRD.
func place(ctx context.Context, c *clients.Clients, i int) error {
	_, err := c.HostedResources().Create(ctx, &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: definition(i).Name},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: hostingv1alpha1.DefaultStoreName},
	}, metav1.CreateOptions{})
	return err
}

// timeCRD measures the time from creating a CRD to listing its objects.
func timeCRD(ctx context.Context, c *clients.Clients, i, retries int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	crd, err := c.CRDs().Create(ctx, definition(i), metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := waitServed(ctx, c, crd, retries); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// waitServed polls until the objects can be listed.
func waitServed(ctx context.Context, c *clients.Clients, crd *apiextensionsv1.CustomResourceDefinition, retries int) error {
	path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Plural)
	for {
		err := c.Kube.Discovery().RESTClient().Get().AbsPath(path).MaxRetries(retries).Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not served, last seen: %w", crd.Name, err)
		case <-time.After(time.Millisecond):
		}
	}
}

// createMany creates CRDs concurrently and waits until all are served.
func createMany(ctx context.Context, c *clients.Clients, count int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return concurrently(count, func(i int) error {
		crd, err := c.CRDs().Create(ctx, definition(i), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return waitServed(ctx, c, crd, noRetries)
	})
}

// concurrently calls do for each number below count, from several goroutines.
func concurrently(count int, do func(i int) error) error {
	numbers := make(chan int)
	errs := make([]error, creators)
	var workers sync.WaitGroup
	for worker := range creators {
		workers.Go(func() {
			for i := range numbers {
				errs[worker] = errors.Join(errs[worker], do(i))
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
	return errors.Join(errs...)
}

// definition returns an ordinary CRD.
func definition(i int) *apiextensionsv1.CustomResourceDefinition {
	spec := map[string]apiextensionsv1.JSONSchemaProps{}
	for field := range fields {
		spec[fmt.Sprintf("field%d", field)] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: "One of many fields."}
	}
	crd := crds.New(fmt.Sprintf("group%d.example.com", i%25), fmt.Sprintf("things%d", i))
	version := crds.NewVersion("v1", true, &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec":   {Type: "object", Properties: spec},
			"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}}},
		},
	})
	version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	crd.Spec.Versions = append(crd.Spec.Versions, version)
	return crd
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
