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
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
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

// clients talk to one annex.
type clients struct {
	annexCRDs    apiextensionsclient.Interface
	annexHosting annexclient.Interface
}

func connect(annex *process.Annex) (*clients, error) {
	config, err := annex.Config()
	if err != nil {
		return nil, err
	}
	annexCRDs, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	annexHosting, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &clients{annexCRDs: annexCRDs, annexHosting: annexHosting}, nil
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
				if err := annexClients.place(ctx, 3*i+number); err != nil {
					return annex, err
				}
			}
			served, err := annexClients.timeCRD(ctx, 3*i+number, probe.retries)
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
	if err := annexClients.createMany(ctx, manyCRDs); err != nil {
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
func (c *clients) place(ctx context.Context, i int) error {
	_, err := c.annexHosting.HostingV1alpha1().HostedResources().Create(ctx, &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: definition(i).Name},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: hostingv1alpha1.DefaultStoreName},
	}, metav1.CreateOptions{})
	return err
}

// timeCRD measures the time from creating a CRD to listing its objects.
func (c *clients) timeCRD(ctx context.Context, i, retries int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	crd, err := c.annexCRDs.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition(i), metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := c.waitServed(ctx, crd, retries); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// waitServed polls until the objects can be listed.
func (c *clients) waitServed(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, retries int) error {
	path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Plural)
	for {
		err := c.annexCRDs.Discovery().RESTClient().Get().AbsPath(path).MaxRetries(retries).Do(ctx).Error()
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
func (c *clients) createMany(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return concurrently(count, func(i int) error {
		crd, err := c.annexCRDs.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition(i), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return c.waitServed(ctx, crd, noRetries)
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
	plural, group := fmt.Sprintf("things%d", i), fmt.Sprintf("group%d.example.com", i%25)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: fmt.Sprintf("thing%d", i), Kind: fmt.Sprintf("Thing%d", i), ListKind: fmt.Sprintf("Thing%dList", i)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec":   {Type: "object", Properties: spec},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}}},
					},
				}},
			}},
		},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
