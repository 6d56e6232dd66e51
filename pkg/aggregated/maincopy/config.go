// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/annex-dev/annex/pkg/aggregated/mainobjects"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// Workers is how many objects are written and deleted at the same time.
const Workers = 16

// defaultSettle is longer than kube-apiserver takes to notice a new policy or definition.
const defaultSettle = 3 * time.Second

// closeSettle is the same while clients wait for the main cluster.
const closeSettle = 400 * time.Millisecond

// Config is what a Copy depends on.
type Config struct {
	// Main is annex's login to the main cluster. Its rate limit is not used.
	Main *restclient.Config
	// Annex is a login to annex with all rights on the objects there. Only Syncers and Exempt need it.
	Annex *restclient.Config
	// User is annex's user name in the main cluster. By default, the main cluster is asked.
	User string
	// Settle is how long a change in the main cluster has to be visible over new connections
	// until it counts as known to all kube-apiservers. Defaults to three seconds.
	Settle time.Duration
}

// Copy works on the objects that the main cluster stores of groups that annex serves.
type Copy struct {
	definitions apiextensionsclient.CustomResourceDefinitionInterface
	apiServices apiregistrationclient.APIServiceInterface
	kube        kubernetes.Interface
	objects     dynamic.Interface
	metadata    metadata.Interface
	annex       dynamic.Interface
	settle      time.Duration
	// pace bounds the writes and deletions of objects, of all groups together.
	pace *move.Pace
	// mainPages and annexPages read the objects of Syncers.
	mainPages, annexPages *mainobjects.Client

	// fresh has connections of its own, which are closed after each probe, so that a load
	// balancer can choose another kube-apiserver.
	freshDefinitions apiextensionsclient.CustomResourceDefinitionInterface
	freshReads       dynamic.Interface
	reconnect        func()

	*known
	check func(ctx context.Context) error
}

// known caches what a Copy has read of the main cluster.
type known struct {
	mu   sync.Mutex
	user string

	raising sync.Mutex
	above   int64 // a revision that the main cluster has passed
	reached atomic.Int64
}

// Fenced returns a Copy whose changes of definitions and policies fail once check does. check is called after what
// is changed was read, and the change is conditional on that: a process that was replaced changes nothing, unless
// its successor has read the change.
func (c *Copy) Fenced(check func(ctx context.Context) error) *Copy {
	fenced := *c
	fenced.check = check
	return &fenced
}

func (c *Copy) checkHeld(ctx context.Context) error {
	if c.check == nil {
		return nil
	}
	return c.check(ctx)
}

// New creates the clients. It sends no request.
func New(config Config) (*Copy, error) {
	login := restclient.CopyConfig(config.Main)
	login.QPS, login.RateLimiter = -1, nil
	c := &Copy{settle: config.Settle, pace: move.NewPace(Workers), known: &known{user: config.User}}
	if c.settle == 0 {
		c.settle = defaultSettle
	}
	var errs [9]error
	definitions, err := apiextensionsclient.NewForConfig(login)
	errs[0] = err
	apiServices, err := apiregistrationclient.NewForConfig(login)
	errs[1] = err
	c.kube, errs[2] = kubernetes.NewForConfig(withProtobuf(login))
	c.objects, errs[3] = dynamic.NewForConfig(login)
	c.metadata, errs[4] = metadata.NewForConfig(login)
	errs[5] = c.newProbes(login)
	c.annex, errs[6] = dynamic.NewForConfig(config.Annex)
	c.mainPages, errs[7] = mainobjects.ClientFor(login, "the main cluster")
	c.annexPages, errs[8] = mainobjects.ClientFor(config.Annex, "annex")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("create clients for the main cluster's copy: %w", err)
	}
	c.definitions, c.apiServices = definitions.CustomResourceDefinitions(), apiServices.APIServices()
	return c, nil
}

// withProtobuf is for the kinds of Kubernetes, whose encoding is then cheaper for both sides.
func withProtobuf(login *restclient.Config) *restclient.Config {
	login = restclient.CopyConfig(login)
	login.ContentType, login.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return login
}

// newProbes creates the clients whose connections are closed after each probe. A dialer of
// their own keeps client-go from sharing the connections of other clients.
func (c *Copy) newProbes(login *restclient.Config) error {
	login = restclient.CopyConfig(login)
	if login.Dial == nil {
		login.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	shared, err := restclient.HTTPClientFor(login)
	if err != nil {
		return err
	}
	c.reconnect = shared.CloseIdleConnections
	definitions, err := apiextensionsclient.NewForConfigAndClient(login, shared)
	if err != nil {
		return err
	}
	c.freshDefinitions = definitions.CustomResourceDefinitions()
	c.freshReads, err = dynamic.NewForConfigAndClient(login, shared)
	return err
}

// userName returns annex's user name in the main cluster.
func (c *Copy) userName(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user != "" {
		return c.user, nil
	}
	review, err := c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("read annex's user name in the main cluster: %w", err)
	}
	c.user = review.Status.UserInfo.Username
	return c.user, nil
}
