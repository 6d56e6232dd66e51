// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// Workers write and delete the objects of a group, one object each.
	Workers = 16
	// defaultSettle is longer than kube-apiserver takes to notice a new policy or definition.
	defaultSettle = 3 * time.Second
	// closeSettle is the same while clients wait for the main cluster.
	closeSettle = 400 * time.Millisecond
)

var (
	definitionsResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	apiServicesResource = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
)

// Config holds what a Copy depends on.
type Config struct {
	// Main is annex's login to the main cluster. Its rate limit is not used.
	Main *restclient.Config
	// Annex is a login to annex with all rights on the objects there. Only Syncers and Probe need it.
	Annex *restclient.Config
	// Settle is the time for which a change in the main cluster has to be visible over new connections
	// until it counts as known to all kube-apiservers. Defaults to three seconds.
	Settle time.Duration
}

// Copy works on the objects that the main cluster stores of groups that annex serves.
type Copy struct {
	definitions    apiextensionsclient.CustomResourceDefinitionInterface
	kube           kubernetes.Interface
	objects, annex dynamic.Interface
	metadata       metadata.Interface
	// mainPages and annexPages are for Sources.
	mainPages, annexPages *pages
	// newProbes returns a client with connections of its own, which reconnect closes, so that a load balancer can
	// choose another kube-apiserver.
	newProbes func() (fresh dynamic.Interface, reconnect func(), err error)
	settle    time.Duration
	// pace bounds the writes and deletions of objects, of all groups together.
	pace    *move.Pace
	raising *raising

	// attempt identifies what this Copy has written, unless check fails.
	attempt string
	check   func(ctx context.Context) error
}

type raising struct {
	sync.Mutex
	reached atomic.Int64
}

// Fenced returns a Copy whose changes of definitions, policies and objects fail once check does. check is called after
// what is changed was read, and the change is conditional on that: a process that was replaced changes nothing that its
// successor has written.
func (c *Copy) Fenced(check func(ctx context.Context) error) *Copy {
	fenced := *c
	fenced.attempt, fenced.check = string(uuid.NewUUID()), check
	return &fenced
}

// New creates the clients. It sends no request.
func New(config Config) (*Copy, error) {
	login := restclient.CopyConfig(config.Main)
	login.QPS, login.RateLimiter = -1, nil
	// Half of the places rest, so that one group is written by all Workers, and all groups together by no more in the mean.
	c := &Copy{settle: config.Settle, pace: move.NewPace(2 * Workers), raising: &raising{}}
	if c.settle == 0 {
		c.settle = defaultSettle
	}
	// For the kinds of Kubernetes it is cheaper for both sides.
	withProtobuf := restclient.CopyConfig(login)
	withProtobuf.ContentType, withProtobuf.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	var errs [7]error
	extensions, err := apiextensionsclient.NewForConfig(login)
	errs[0] = err
	c.kube, errs[1] = kubernetes.NewForConfig(withProtobuf)
	c.objects, errs[2] = dynamic.NewForConfig(login)
	c.metadata, errs[3] = metadata.NewForConfig(login)
	c.newProbes = func() (dynamic.Interface, func(), error) { return newProbes(login) }
	c.annex, errs[4] = dynamic.NewForConfig(config.Annex)
	c.mainPages, errs[5] = newPages(login, "the main cluster")
	c.annexPages, errs[6] = newPages(config.Annex, "annex")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("create clients for the main cluster's copy: %w", err)
	}
	c.definitions = extensions.CustomResourceDefinitions()
	return c.Fenced(func(context.Context) error { return nil }), nil
}

// newProbes implements Copy.newProbes. Two waits that share connections keep each other from closing them. A proxy
// function, which is the default here, keeps client-go from sharing them.
func newProbes(login *restclient.Config) (fresh dynamic.Interface, reconnect func(), err error) {
	login = restclient.CopyConfig(login)
	if login.Proxy == nil {
		login.Proxy = http.ProxyFromEnvironment
	}
	own, err := restclient.HTTPClientFor(login)
	if err != nil {
		return nil, nil, err
	}
	fresh, err = dynamic.NewForConfigAndClient(login, own)
	return fresh, func() { utilnet.CloseIdleConnectionsFor(own.Transport) }, err // also below the wrapper that adds a token
}

func (c *Copy) userName(ctx context.Context) (string, error) {
	review, err := c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("read annex's user name in the main cluster: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}
