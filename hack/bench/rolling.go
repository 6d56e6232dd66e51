// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// restarted is the number of replicas, and writers the number of clients.
const restarted, writers = 2, 8

// rollingRestart counts the requests that fail while all replicas are replaced,
// with the defaults of annex behind a main cluster.
func (b *bench) rollingRestart(ctx context.Context) error {
	return withMain(ctx, maincluster.Options{Controllers: []string{maincluster.NoControllers}}, b.measureRolling)
}

func (b *bench) measureRolling(ctx context.Context, installation *annextest.Installation) (err error) {
	etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Config{Dir: filepath.Join(b.dir, "rolling-etcd"), SocketPath: filepath.Join(b.dir, "rolling", "client.sock")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()

	started := 0
	launch := func() (*annextest.Annex, error) {
		started++
		return installation.LaunchProcess(ctx, filepath.Join(b.dir, fmt.Sprint("rolling-", started)), "--etcd-servers="+etcd.Endpoint())
	}
	var replicas [restarted]*annextest.Annex
	defer func() {
		for _, replica := range replicas {
			if replica != nil {
				replica.Process.Kill()
			}
		}
	}()
	for i := range replicas {
		if replicas[i], err = launch(); err != nil {
			return err
		}
	}
	crd, err := publish(ctx, replicas[0])
	if err != nil {
		return err
	}
	requests, failed, err := underLoad(installation.Cluster.Config, installation.Cluster.URL, crd, func() error {
		for i := range replicas {
			if err := replicas[i].Shutdown(); err != nil {
				return err
			}
			if replicas[i], err = launch(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.add(figure{name: fmt.Sprintf("rolling restart of %d replicas: failed of %d requests through the main cluster", restarted, requests), measured: float64(failed)})
	return nil
}

// publish defines a resource on annex and waits until the main cluster sends
// requests for it there. It returns the definition.
func publish(ctx context.Context, annex *annextest.Annex) (*apiextensionsv1.CustomResourceDefinition, error) {
	annexClients, err := clients.New(annex.AnnexConfig)
	if err != nil {
		return nil, err
	}
	crd := definition(0)
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object"}
	created, err := annexClients.CRDs().Create(ctx, crd, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if err := annex.WaitPublished(ctx, crd.Spec.Group, crd.Spec.Versions[0].Name); err != nil {
		return nil, err
	}
	mainClients, err := clients.New(annex.Cluster.Config)
	if err != nil {
		return nil, err
	}
	return created, waitServed(ctx, mainClients, created, noRetries)
}

// underLoad counts requests for objects of a definition, and failed ones, during do. It does not
// retry.
func underLoad(mainConfig *restclient.Config, server string, crd *apiextensionsv1.CustomResourceDefinition, do func() error) (requests, failed int, err error) {
	version := crd.Spec.Group + "/" + crd.Spec.Versions[0].Name
	url := fmt.Sprintf("%s/apis/%s/namespaces/default/%s", server, version, crd.Spec.Names.Plural)
	mainHTTP, err := restclient.HTTPClientFor(mainConfig)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	send := func(method, url, contentType, body string) {
		ok := succeeds(mainHTTP, method, url, contentType, body)
		mu.Lock()
		defer mu.Unlock()
		requests++
		if !ok {
			failed++
		}
	}
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				name := fmt.Sprintf("rolling-%d-%d", writer, round)
				send(http.MethodPost, url, "application/json", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, version, crd.Spec.Names.Kind, name))
				send(http.MethodGet, url+"/"+name, "", "")
				send(http.MethodPatch, url+"/"+name, "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`)
				send(http.MethodDelete, url+"/"+name, "", "")
			}
		})
	}
	// Some requests before and after.
	time.Sleep(time.Second)
	err = do()
	time.Sleep(time.Second)
	cancel()
	running.Wait()
	return requests, failed, err
}

func succeeds(mainHTTP *http.Client, method, url, contentType, body string) bool {
	request, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return false
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := mainHTTP.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode/100 == 2
}
