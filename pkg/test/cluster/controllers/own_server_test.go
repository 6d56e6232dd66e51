// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	helloGroup     = "hello.example.org"
	helloNamespace = "hello-system"
	helloService   = "hello"
)

// TestYourOwnServer shows how to test any aggregated API server: two replicas behind a Service.
// Package maincluster describes the cluster.
func TestYourOwnServer(t *testing.T) {
	t.Parallel()
	certificate, key, err := mainCluster.ServingCertificate(helloNamespace, helloService)
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(mainCluster.CA())
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{
		ReadyTLS: &tls.Config{RootCAs: roots, ServerName: helloService + "." + helloNamespace + ".svc"},
	})
	expect.NoError(t, err)
	t.Cleanup(func() { balancer.Close() })
	first, second := startHello(t, "first", certificate, key), startHello(t, "second", certificate, key)
	balancer.Add(first.Listener.Addr().String())
	balancer.Add(second.Listener.Addr().String())

	expect.NoError(t, mainCluster.ExternalNameService(t.Context(), helloNamespace, helloService))
	registerHello(t, int32(balancer.Port()))
	mainClient := kube(t, mainCluster.Config)
	poll.UntilNoError(t, "a response through the main cluster", func() error {
		_, err := hello(t.Context(), mainClient)
		return err
	})

	t.Run("the user is passed on", func(t *testing.T) {
		got, err := hello(t.Context(), mainClient)
		expect.NoError(t, err)
		if got.User != "main-admin" {
			t.Errorf("the server received the user %q", got.User)
		}
	})
	t.Run("the main cluster's RBAC applies", func(t *testing.T) {
		config, err := mainCluster.ConfigFor("jane")
		expect.NoError(t, err)
		if _, err := hello(t.Context(), kubernetes.NewForConfigOrDie(config)); !apierrors.IsForbidden(err) {
			t.Errorf("a user without a role got %v", err)
		}
	})
	t.Run("the other replica takes over", func(t *testing.T) {
		got, err := hello(t.Context(), mainClient)
		expect.NoError(t, err)
		stopped, other := first, "second"
		if got.Replica == "second" {
			stopped, other = second, "first"
		}
		balancer.Remove(stopped.Listener.Addr().String())
		stopped.CloseClientConnections()
		poll.UntilNoError(t, "a response of "+other, func() error {
			got, err := hello(t.Context(), mainClient)
			if err == nil && got.Replica != other {
				err = fmt.Errorf("%s responds", got.Replica)
			}
			return err
		})
	})
}

// greeting is the response of the server under test.
type greeting struct{ Replica, User string }

func hello(ctx context.Context, mainClient kubernetes.Interface) (greeting, error) {
	raw, err := mainClient.CoreV1().RESTClient().Get().AbsPath("/apis", helloGroup, "v1", "greetings").Do(ctx).Raw()
	if err != nil {
		return greeting{}, err
	}
	var got greeting
	return got, json.Unmarshal(raw, &got)
}

// startHello starts the server under test, with what the main cluster needs: readiness for the
// balancer, and discovery for the controllers.
func startHello(t *testing.T, replica string, certificate, key []byte) *httptest.Server {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate, key)
	expect.NoError(t, err)
	respond := func(w http.ResponseWriter, content any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content)
	}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	handler.HandleFunc("GET /apis/"+helloGroup+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: helloGroup + "/v1"})
	})
	handler.HandleFunc("GET /apis/"+helloGroup+"/v1/greetings", func(w http.ResponseWriter, r *http.Request) {
		respond(w, greeting{Replica: replica, User: r.Header.Get("X-Remote-User")})
	})
	server, _ := clients.ServeTLS(t, handler, &tls.Config{Certificates: []tls.Certificate{pair}})
	return server
}

func registerHello(t *testing.T, port int32) {
	t.Helper()
	apiServices := aggregatorclient.NewForConfigOrDie(mainCluster.Config).ApiregistrationV1().APIServices()
	service := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + helloGroup},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: helloGroup, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10,
			Service:  &apiregistrationv1.ServiceReference{Namespace: helloNamespace, Name: helloService, Port: new(port)},
			CABundle: mainCluster.CA(),
		},
	}
	expect.Create(t, apiServices, service)
	t.Cleanup(func() { _ = apiServices.Delete(context.Background(), service.Name, metav1.DeleteOptions{}) })
}
