// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
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

var hostingAPIService = hostingv1alpha1.SchemeGroupVersion.Version + "." + hostingv1alpha1.SchemeGroupVersion.Group

// environment has all that checks read. They write nothing except reviews, which are not
// stored, and the file of --save.
type environment struct {
	*options

	// Clients reach the main cluster. Clients.Annex reads annex's own group through it.
	*login.Clients
	mainServer string
	// getMain gets a path of the main cluster.
	getMain func(ctx context.Context, path, accept string) (*answer, error)

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

func newEnvironment(ctx context.Context, o *options) (*environment, error) {
	clients, err := o.login.ConnectMain(ctx, "annex-doctor")
	if err != nil {
		return nil, err
	}
	base, _, err := restclient.DefaultServerUrlFor(clients.Config)
	if err != nil {
		return nil, fmt.Errorf("find the address of the main cluster: %w", err)
	}
	_, notInCluster := restclient.InClusterConfig()
	return &environment{
		options: o, Clients: clients, mainServer: clients.Config.Host,
		getMain: func(ctx context.Context, path, accept string) (*answer, error) {
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
	if hosting := e.hosting(); !e.serviceGiven && hosting != nil && hosting.Spec.Service != nil && hosting.Labels[hostingv1alpha1.PublishedByLabel] != "" {
		e.service = serviceOf(hosting)
	}
	e.backend, e.backendErr = e.Kube.CoreV1().Services(e.service.Namespace).Get(ctx, e.service.Name, metav1.GetOptions{})
	return "", nil
}

// hosting returns the APIService of annex's own group, or nil.
func (e *environment) hosting() *apiregistrationv1.APIService {
	for i := range e.routes {
		if e.routes[i].Name == hostingAPIService {
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
	return hostingv1alpha1.PublishedBy(e.service.Namespace, e.service.Name)
}

func (e *environment) published() (ours []apiregistrationv1.APIService) {
	for _, route := range e.routes {
		if route.Labels[hostingv1alpha1.PublishedByLabel] == e.publishedBy() {
			ours = append(ours, route)
		}
	}
	return ours
}

// logs is the command that prints annex's logs.
func (e *environment) logs() string {
	return fmt.Sprintf("kubectl -n %s logs -l %s --tail=50", e.service.Namespace, podLabel)
}

// pods is the command that shows whether annex runs.
func (e *environment) pods() string {
	return fmt.Sprintf("kubectl -n %s get pods -l %s -o wide", e.service.Namespace, podLabel)
}

const applicationJSON = "application/json"

// decodeMain decodes what the main cluster has at a path.
func (e *environment) decodeMain(ctx context.Context, path, accept string, into any) (*answer, error) {
	answer, err := e.getMain(ctx, path, accept)
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
