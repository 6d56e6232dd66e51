// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/scheduler"
)

// Names in the manifests in artifacts/deploy.
const (
	manifestNamespace      = "annex-system"
	manifestServiceAccount = "annex"
	manifestService        = "annex"
	manifestLease          = "annex-controllers"
	manifestSecret         = "annex-serving-ca"
	podLabel               = "app.kubernetes.io/name=annex"
)

// HostingAPIService is the name of the APIService of annex's own group.
var HostingAPIService = hostingv1alpha1.SchemeGroupVersion.Version + "." + hostingv1alpha1.SchemeGroupVersion.Group

// Server is the annex that was checked. What the checks could not read is empty.
type Server struct {
	// Address is the URL of the server that answered: the main cluster, or annex itself.
	Address string `json:"address"`
	// Mode is "standalone" or "aggregated".
	Mode string `json:"mode,omitempty"`
	// Version is the version of annex, and of the leader if there are several replicas.
	Version string `json:"version,omitempty"`
	// MainCluster is the Kubernetes version of the main cluster.
	MainCluster string `json:"mainCluster,omitempty"`
	// Leader is the identity of the replica that runs the controllers.
	Leader string `json:"leader,omitempty"`
	// Replicas counts the replicas behind the Service, and ReadyReplicas those that are ready.
	Replicas      int `json:"replicas,omitempty"`
	ReadyReplicas int `json:"readyReplicas,omitempty"`
	// CertificateExpires has the earliest expiry of annex's certificates.
	CertificateExpires *metav1.Time `json:"certificateExpires,omitempty"`
}

// expires notes when a certificate expires.
func (s *Server) expires(at time.Time) {
	if s.CertificateExpires == nil || at.Before(s.CertificateExpires.Time) {
		s.CertificateExpires = &metav1.Time{Time: at}
	}
}

// Objects are annex's own.
type Objects struct {
	Resources     []hostingv1alpha1.HostedResource
	Stores        []hostingv1alpha1.Store
	Migrations    []hostingv1alpha1.Migration
	StaticSources []hostingv1alpha1.StaticSource
}

// ReadObjects reads annex's objects.
func ReadObjects(ctx context.Context, annex annexclient.Interface) (*Objects, error) {
	found, err := scheduler.ReadCluster(ctx, annex.HostingV1alpha1())
	if err != nil {
		return nil, err
	}
	static, err := annex.HostingV1alpha1().StaticSources().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		static, err = &hostingv1alpha1.StaticSourceList{}, nil // an older annex
	}
	if err != nil {
		return nil, fmt.Errorf("list StaticSources: %w", err)
	}
	return &Objects{found.Resources, found.Stores, found.Migrations, static.Items}, nil
}

// environment has all that checks read. They write nothing except reviews, which are not
// stored, and the file of --save.
type environment struct {
	Options

	// Clients reach the main cluster, with Direct annex itself. Clients.Annex reads annex's own group.
	*login.Clients
	scope Scope
	// get gets a path of that server.
	get func(ctx context.Context, path, accept string) (*answer, error)

	// What checks have read, for those that come later and for the Report. objects is nil before.
	server  Server
	objects *Objects

	// routes and crds are the APIServices and definitions of the main cluster, and backend the Service that annex has
	// published, or the error of its read. checkMainCluster reads them.
	routes     []apiregistrationv1.APIService
	crds       []apiextensionsv1.CustomResourceDefinition
	backend    *corev1.Service
	backendErr error

	inCluster bool
	now       func() time.Time
}

type answer struct {
	status int
	header http.Header
	body   []byte
	// sent and answered are the times of the request and the response by the local clock.
	sent, answered time.Time
}

func newEnvironment(clients *login.Clients, o *Options, scope Scope) (*environment, error) {
	base, _, err := restclient.DefaultServerUrlFor(clients.Config)
	if err != nil {
		return nil, fmt.Errorf("find the address of the server: %w", err)
	}
	_, notInCluster := restclient.InClusterConfig()
	return &environment{
		Options: *o, Clients: clients, scope: scope, server: Server{Address: clients.Config.Host},
		get: func(ctx context.Context, path, accept string) (*answer, error) {
			return get(ctx, clients.HTTP, strings.TrimSuffix(base.String(), "/")+path, accept)
		},
		inCluster: notInCluster == nil, now: time.Now,
	}, nil
}

// readObjects reads the APIServices and definitions of the main cluster, and the Service that annex has
// published, whatever its name. The resource is the one that cannot be read.
func (e *environment) readObjects(ctx context.Context) (resource string, err error) {
	apiServices, err := e.APIServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "apiservices", err
	}
	definitions, err := e.Definitions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "customresourcedefinitions", err
	}
	e.routes, e.crds = apiServices.Items, definitions.Items
	if hosting := e.hosting(); !e.ServiceGiven && hosting != nil && hosting.Spec.Service != nil && hosting.Labels[hostingv1alpha1.PublishedByLabel] != "" {
		e.Service = serviceOf(hosting)
	}
	e.backend, e.backendErr = e.Kube.CoreV1().Services(e.Service.Namespace).Get(ctx, e.Service.Name, metav1.GetOptions{})
	return "", nil
}

// hosting returns the APIService of annex's own group, or nil.
func (e *environment) hosting() *apiregistrationv1.APIService {
	for i := range e.routes {
		if e.routes[i].Name == HostingAPIService {
			return &e.routes[i]
		}
	}
	return nil
}

func serviceOf(of *apiregistrationv1.APIService) maincluster.Service {
	found := maincluster.Service{Namespace: of.Spec.Service.Namespace, Name: of.Spec.Service.Name, Port: 443}
	if of.Spec.Service.Port != nil {
		found.Port = *of.Spec.Service.Port
	}
	return found
}

// publishedBy returns the label value of this annex's APIServices.
func (e *environment) publishedBy() string {
	return hostingv1alpha1.PublishedBy(e.Service.Namespace, e.Service.Name)
}

func (e *environment) published() (ours []apiregistrationv1.APIService) {
	for _, route := range e.routes {
		if route.Labels[hostingv1alpha1.PublishedByLabel] == e.publishedBy() {
			ours = append(ours, route)
		}
	}
	return ours
}

// outside is the advice where annex runs outside of the main cluster, and has no Pods there.
const outside = "annex runs outside of this cluster: read its log there"

// logs is the command that prints annex's logs.
func (e *environment) logs() string {
	if e.runsOutside() {
		return outside
	}
	return fmt.Sprintf("kubectl -n %s logs -l %s --tail=50", e.Service.Namespace, podLabel)
}

// pods is the command that shows whether annex runs.
func (e *environment) pods() string {
	if e.runsOutside() {
		return outside
	}
	return fmt.Sprintf("kubectl -n %s get pods -l %s -o wide", e.Service.Namespace, podLabel)
}

// runsOutside reports whether the Service selects no Pods.
func (e *environment) runsOutside() bool {
	return e.backend != nil && e.backendErr == nil && len(e.backend.Spec.Selector) == 0
}

const applicationJSON = "application/json"

// decode decodes what the main cluster has at a path.
func (e *environment) decode(ctx context.Context, path, accept string, into any) (*answer, error) {
	answer, err := e.get(ctx, path, accept)
	if err != nil || answer.status != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, outcome(answer, err))
	}
	if err := json.Unmarshal(answer.body, into); err != nil {
		return nil, fmt.Errorf("%s cannot be decoded: %w", path, err)
	}
	return answer, nil
}

func get(ctx context.Context, client *http.Client, url, accept string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("create the request for %s: %w", url, err)
	}
	request.Header.Set("Accept", accept)
	a := &answer{sent: time.Now()}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a.answered = time.Now()
	a.status, a.header = response.StatusCode, response.Header
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return nil, fmt.Errorf("read the response from %s: %w", url, err)
	}
	return a, nil
}
