// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
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

// hostingAPIService is the APIService of annex's own group.
var hostingAPIService = hostingv1alpha1.SchemeGroupVersion.Version + "." + hostingv1alpha1.SchemeGroupVersion.Group

// environment is what checks read. They write nothing except reviews, which are not
// stored, and the file of --save.
type environment struct {
	// program is the name of the command in suggestions.
	program string

	mainServer          string
	main                kubernetes.Interface
	mainAPIExtensions   apiextensionsclient.Interface
	mainAPIRegistration aggregatorclient.Interface
	// annexThroughMain reads annex's own group through the main cluster.
	annexThroughMain annexclient.Interface
	// getMain gets a path of the main cluster.
	getMain func(ctx context.Context, path, accept string) (*answer, error)

	service        maincluster.Service
	serviceAccount string
	annexServer    string
	inCluster      bool
	save, compare  string
	now            func() time.Time
}

// answer is the response to a GET.
type answer struct {
	status int
	header http.Header
	body   []byte
	// asked and answered are times of the local clock.
	asked, answered time.Time
}

func newEnvironment(ctx context.Context, o *options) (*environment, error) {
	config, err := o.login.MainConfig(ctx, "annex-doctor")
	if err != nil {
		return nil, err
	}
	config.WarningHandler = restclient.NoWarnings{}
	e := &environment{
		program: o.program, mainServer: config.Host,
		service: o.service, serviceAccount: o.serviceAccount, annexServer: o.annexServer,
		save: o.save, compare: o.compare, now: time.Now,
	}
	if err := e.connect(config); err != nil {
		return nil, err
	}
	if !o.serviceGiven {
		e.adoptService(ctx)
	}
	return e, nil
}

func (e *environment) connect(config *restclient.Config) error {
	var errs [5]error
	var client *http.Client
	e.main, errs[0] = kubernetes.NewForConfig(config)
	e.mainAPIExtensions, errs[1] = apiextensionsclient.NewForConfig(config)
	e.mainAPIRegistration, errs[2] = aggregatorclient.NewForConfig(config)
	e.annexThroughMain, errs[3] = annexclient.NewForConfig(config)
	client, errs[4] = restclient.HTTPClientFor(config)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("create the clients of the main cluster: %w", err)
	}
	base, _, err := restclient.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("find the address of the main cluster: %w", err)
	}
	e.getMain = func(ctx context.Context, path, accept string) (*answer, error) {
		return get(ctx, client, strings.TrimSuffix(base.String(), "/")+path, accept)
	}
	_, err = restclient.InClusterConfig()
	e.inCluster = err == nil
	return nil
}

// adoptService uses the Service that annex has published, whatever its name.
func (e *environment) adoptService(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	hosting, err := e.mainAPIRegistration.ApiregistrationV1().APIServices().Get(ctx, hostingAPIService, metav1.GetOptions{})
	if err != nil || hosting.Spec.Service == nil || hosting.Labels[hostingv1alpha1.PublishedByLabel] == "" {
		return
	}
	e.service = serviceOf(hosting)
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

// published lists the APIServices of this annex.
func (e *environment) published(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	found, err := e.mainAPIRegistration.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{
		LabelSelector: hostingv1alpha1.PublishedByLabel + "=" + e.publishedBy(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices of annex in the main cluster: %w", err)
	}
	return found.Items, nil
}

// logs is the command that prints annex's logs.
func (e *environment) logs() string {
	return fmt.Sprintf("kubectl -n %s logs -l %s --tail=50", e.service.Namespace, podLabel)
}

// pods is the command that shows whether annex runs.
func (e *environment) pods() string {
	return fmt.Sprintf("kubectl -n %s get pods -l %s -o wide", e.service.Namespace, podLabel)
}

func get(ctx context.Context, client *http.Client, url, accept string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("create the request for %s: %w", url, err)
	}
	request.Header.Set("Accept", accept)
	a := &answer{asked: time.Now()}
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
