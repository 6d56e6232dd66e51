// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/clients"
)

const (
	// expiredObjects is how many objects expire, unless RETENTION_OBJECTS says otherwise.
	expiredObjects = 10_000
	// retentionRounds is how often requests are timed with, and without, running deletions, each time
	// for retentionRound: garbage collections are seconds apart.
	retentionRounds = 4
	retentionRound  = 30 * time.Second
	// retentionLimit bounds the measurement, for 100,000 objects too.
	retentionLimit = 2 * time.Hour
)

// retention measures requests for a resource while expired objects of another are deleted, and
// while none are. Both alternate, so that other load of the machine affects both.
func (b *bench) retention(ctx context.Context) error {
	objects := expiredObjects
	if text := os.Getenv("RETENTION_OBJECTS"); text != "" {
		var err error
		if objects, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("RETENTION_OBJECTS: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, retentionLimit)
	defer cancel()
	annex, _, err := b.start(ctx, filepath.Join(b.dir, "retention"))
	if err != nil {
		return err
	}
	defer annex.Kill()
	annexClients, err := connect(annex)
	if err != nil {
		return err
	}
	var resources []*apiextensionsv1.CustomResourceDefinition
	for i := range 2 {
		crd, err := annexClients.CRDs().Create(ctx, definition(i), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if err := waitServed(ctx, annexClients, crd, usualRetries); err != nil {
			return err
		}
		resources = append(resources, crd)
	}
	used, expired := resources[0], resources[1]
	annexREST := annexClients.Kube.Discovery().RESTClient()
	err = concurrently(objects, func(i int) error {
		body, err := thing(expired, i)
		if err != nil {
			return err
		}
		path := fmt.Sprintf("/apis/%s/%s/namespaces/default/%s", expired.Spec.Group, expired.Spec.Versions[0].Name, expired.Spec.Names.Plural)
		return annexREST.Post().AbsPath(path).Body(body).Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	var without, with []time.Duration
	var deleting time.Duration
	var requests int
	for range retentionRounds {
		for number, took := range []*[]time.Duration{&without, &with} {
			running := number == 1
			if err := setRetention(ctx, annexClients, expired.Name, running); err != nil {
				return err
			}
			began := time.Now()
			for ; time.Since(began) < retentionRound; requests++ {
				these, err := requestThing(ctx, annexREST, used, requests)
				if err != nil {
					return err
				}
				*took = append(*took, these...)
			}
			if running {
				deleting += time.Since(began)
			}
		}
	}
	return b.addRetention(ctx, annexClients, expired.Name, objects, without, with, deleting)
}

// setRetention starts or stops the deletions, and waits until they have.
func setRetention(ctx context.Context, c *clients.Clients, name string, running bool) error {
	retention := "null"
	if running {
		retention = `{"deletionsPerSecond": 1000, "rules": [{"name": "old", "afterSeconds": 1}]}`
	}
	if _, err := c.HostedResources().Patch(ctx, name, types.MergePatchType, []byte(`{"spec": {"retention": `+retention+`}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	return poll(ctx, "the retention of "+name, func() (string, error) {
		hosted, err := c.HostedResources().Get(ctx, name, metav1.GetOptions{})
		if err != nil || (hosted.Status.Retention != nil && hosted.Status.Retention.LastRunTime != nil) == running {
			return "", err
		}
		return fmt.Sprintf("the status is %+v", hosted.Status.Retention), nil
	})
}

func (b *bench) addRetention(ctx context.Context, c *clients.Clients, name string, objects int, without, with []time.Duration, deleting time.Duration) error {
	hosted, err := c.HostedResources().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	left := float64(hosted.Status.Objects)
	p99 := func(all []time.Duration) float64 {
		slices.Sort(all)
		return milliseconds(all[len(all)*99/100])
	}
	b.add(figure{name: "requests while no expired objects are deleted, p99", measured: p99(without), unit: "ms"})
	b.add(figure{name: fmt.Sprintf("the same while %d expired objects are deleted, p99", objects), measured: p99(with), unit: "ms"})
	b.add(figure{name: "with deletions / without, p99", measured: p99(with) / p99(without), target: 1.5, unit: "x"})
	b.add(figure{name: "deletions meanwhile", measured: (float64(objects) - left) / deleting.Seconds(), unit: "/s"})
	b.add(figure{name: "expired objects that are left, 0 if there were too few for the comparison", measured: left, unit: ""})
	return nil
}
