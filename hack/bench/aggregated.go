// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

const (
	// takeovers is the number of CRDs that are labelled, one after the other.
	takeovers = 7
	// gets, lists and creates are the numbers of requests on each way.
	gets, lists, creates = 1000, 50, 300
	// listed is the number of objects in a list.
	listed = 500
)

// withMain starts a main cluster, prepares it for annex, and calls measure.
func withMain(ctx context.Context, options maincluster.Options, measure func(context.Context, *annextest.Installation) error) (err error) {
	cluster, err := maincluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, balancer.Close()) }()
	installation, err := annextest.Install(ctx, cluster, balancer)
	if err != nil {
		return err
	}
	return measure(ctx, installation)
}

// aggregated measures annex behind a main cluster.
func (b *bench) aggregated(ctx context.Context) error {
	return withMain(ctx, maincluster.Options{}, b.measureBehind)
}

func (b *bench) measureBehind(ctx context.Context, installation *annextest.Installation) (err error) {
	annex, err := installation.LaunchProcess(ctx, filepath.Join(b.dir, "aggregated"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, annex.Shutdown()) }()
	if err := annex.WaitHosting(ctx); err != nil {
		return err
	}
	followed, err := b.addTakeovers(ctx, annex)
	if err != nil {
		return err
	}
	return b.addWays(ctx, annex, followed)
}

// addTakeovers measures the time from the label to the first response. The first takeover
// is not counted: annex does not change the main cluster in its first seconds. It returns
// a CRD that was taken over.
func (b *bench) addTakeovers(ctx context.Context, annex *annextest.Annex) (*apiextensionsv1.CustomResourceDefinition, error) {
	mainClients, err := clients.New(annex.Cluster.Config)
	if err != nil {
		return nil, err
	}
	var followed *apiextensionsv1.CustomResourceDefinition
	var took []time.Duration
	for i := range takeovers + 1 {
		followed = definition(i)
		followed.Spec.Group = fmt.Sprintf("followed%d.example.com", i)
		followed.Name = followed.Spec.Names.Plural + "." + followed.Spec.Group
		served, err := timeTakeover(ctx, annex, mainClients, followed)
		if err != nil {
			return nil, err
		}
		took = append(took, served)
	}
	took = took[1:]
	b.add(figure{name: "CRD of the main cluster, label to served from annex, median", measured: median(took).Seconds(), target: 2, unit: "s"})
	b.add(figure{name: "CRD of the main cluster, label to served from annex, slowest", measured: slices.Max(took).Seconds(), target: 2, unit: "s"})
	return followed, nil
}

func timeTakeover(ctx context.Context, annex *annextest.Annex, mainClients *clients.Clients, crd *apiextensionsv1.CustomResourceDefinition) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	created, err := mainClients.CRDs().Create(ctx, crd, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := waitServed(ctx, mainClients, created, noRetries); err != nil {
		return 0, err
	}
	if err := annex.AllowGroup(ctx, crd.Spec.Group); err != nil {
		return 0, err
	}
	began := time.Now()
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, hostingv1alpha1.HostedLabel)
	if _, err := mainClients.CRDs().Patch(ctx, crd.Name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		return 0, err
	}
	if err := annex.WaitPublished(ctx, crd.Spec.Group, crd.Spec.Versions[0].Name); err != nil {
		return 0, err
	}
	err = waitServed(ctx, mainClients, created, noRetries)
	return time.Since(began), err
}

// way is one of the two ways of requests to annex.
type way struct {
	name   string
	client restclient.Interface
	took   []time.Duration
}

// addWays compares requests through the main cluster with direct ones. They alternate, so
// that other load of the machine affects both.
func (b *bench) addWays(ctx context.Context, annex *annextest.Annex, crd *apiextensionsv1.CustomResourceDefinition) error {
	ways := [2]*way{{name: "directly"}, {name: "through"}}
	for i, config := range []*restclient.Config{annex.AnnexConfig, annex.Cluster.Config} {
		connected, err := apiextensionsclient.NewForConfig(config)
		if err != nil {
			return err
		}
		ways[i].client = connected.Discovery().RESTClient()
	}
	path := fmt.Sprintf("/apis/%s/%s/namespaces/default/%s", crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Plural)
	made := 0
	create := func(ctx context.Context, client restclient.Interface) error {
		made++
		object, err := thing(crd, made)
		if err != nil {
			return err
		}
		return client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(object).Do(ctx).Error()
	}
	if err := b.compare(ctx, "CREATE", creates, ways, create); err != nil {
		return err
	}
	for made < listed {
		if err := create(ctx, ways[0].client); err != nil {
			return err
		}
	}
	get := func(ctx context.Context, client restclient.Interface) error {
		_, err := client.Get().AbsPath(path, "thing-1").Do(ctx).Raw()
		return err
	}
	if err := b.compare(ctx, "GET", gets, ways, get); err != nil {
		return err
	}
	list := func(ctx context.Context, client restclient.Interface) error {
		_, err := client.Get().AbsPath(path).Param("resourceVersion", "0").Do(ctx).Raw()
		return err
	}
	return b.compare(ctx, fmt.Sprintf("LIST of %d objects", made), lists, ways, list)
}

// compare times a request on both ways and adds the ratio.
func (b *bench) compare(ctx context.Context, name string, times int, ways [2]*way, request func(context.Context, restclient.Interface) error) error {
	for _, way := range ways {
		way.took = nil
		// The first one opens the connection and fills caches.
		if err := request(ctx, way.client); err != nil {
			return fmt.Errorf("%s %s: %w", name, way.name, err)
		}
	}
	for range times {
		for _, way := range ways {
			began := time.Now()
			if err := request(ctx, way.client); err != nil {
				return fmt.Errorf("%s %s: %w", name, way.name, err)
			}
			way.took = append(way.took, time.Since(began))
		}
	}
	direct, through := median(ways[0].took), median(ways[1].took)
	b.add(figure{name: name + " to annex directly, median", measured: milliseconds(direct), unit: "ms"})
	b.add(figure{name: name + " through the main cluster, median", measured: milliseconds(through), unit: "ms"})
	b.add(figure{name: name + " through the main cluster / directly", measured: float64(through) / float64(direct), unit: "x"})
	return nil
}

// thing is an object of about a kilobyte.
func thing(crd *apiextensionsv1.CustomResourceDefinition, i int) ([]byte, error) {
	spec := map[string]any{}
	for field := range fields {
		spec[fmt.Sprintf("field%d", field)] = "a value of some length, as they have"
	}
	object := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": crd.Spec.Group + "/" + crd.Spec.Versions[0].Name,
		"kind":       crd.Spec.Names.Kind,
		"metadata":   map[string]any{"name": fmt.Sprintf("thing-%d", i)},
		"spec":       spec,
	}}
	content, err := json.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	return content, nil
}
