// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login finds the server of client commands and logs in, as kubectl does.
package login

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/version"
)

// Options select the server.
type Options struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// AddFlags adds the flags of the options, and kubectl's, which are hidden, as in kubectl's own commands. Server completes
// "The kubeconfig of".
func (o *Options) AddFlags(fs *pflag.FlagSet, server string) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.CurrentContext.LongName = "" // it is shown
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	for _, no := range []*clientcmd.FlagInfo{
		&names.ClusterOverrideFlags.InsecureSkipTLSVerify, &names.AuthOverrideFlags.Username, &names.AuthOverrideFlags.Password,
	} {
		no.LongName = ""
	}
	kubectl := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&o.overrides, kubectl, names)
	kubectl.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	fs.AddFlagSet(kubectl)
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"The kubeconfig of "+server+". If not set, $KUBECONFIG or ~/.kube/config, as kubectl does; in a pod, its service account.")
	fs.StringVar(&o.overrides.CurrentContext, "context", o.overrides.CurrentContext, "The context of the kubeconfig to use.")
}

// AnnexOrMain describes the server of commands that also reach annex through its main
// cluster.
const AnnexOrMain = "annex, or of its main cluster"

// Given reports whether a flag selects the server.
func (o *Options) Given() bool {
	return cmp.Or(o.kubeconfig, o.overrides.CurrentContext, o.overrides.Context.Cluster, o.overrides.Context.AuthInfo, o.overrides.ClusterInfo.Server) != ""
}

// Clients are clients of a server without a rate limit: the server has one.
type Clients struct {
	Config      *restclient.Config
	HTTP        *http.Client
	Kube        kubernetes.Interface
	Metadata    metadata.Interface
	Dynamic     dynamic.Interface
	Definitions apiextensionsclient.Interface
	APIServices apiregistrationclient.APIServiceInterface
	// Annex has annex's own kinds.
	Annex annexclient.Interface
}

// NewClients makes the clients. It sends no request.
func NewClients(config *restclient.Config) (*Clients, error) {
	c := &Clients{Config: config}
	var errs [7]error
	if c.HTTP, errs[0] = restclient.HTTPClientFor(config); errs[0] == nil {
		c.Kube, errs[1] = kubernetes.NewForConfigAndClient(config, c.HTTP)
		c.Metadata, errs[2] = metadata.NewForConfigAndClient(config, c.HTTP)
		c.Dynamic, errs[3] = dynamic.NewForConfigAndClient(config, c.HTTP)
		c.Definitions, errs[4] = apiextensionsclient.NewForConfigAndClient(config, c.HTTP)
		c.Annex, errs[5] = annexclient.NewForConfigAndClient(config, c.HTTP)
		var registration *aggregatorclient.Clientset
		if registration, errs[6] = aggregatorclient.NewForConfigAndClient(config, c.HTTP); errs[6] == nil {
			c.APIServices = registration.ApiregistrationV1().APIServices()
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("--kubeconfig: create the clients: %w", err)
	}
	return c, nil
}

// Connect returns clients of the selected server. It sends no request.
func (o *Options) Connect(userAgent string) (*Clients, error) { return o.connect(userAgent, nil) }

func (o *Options) connect(userAgent string, warnings restclient.WarningHandler) (*Clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &o.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: load the login: %w", err)
	}
	config.QPS, config.UserAgent, config.WarningHandler = -1, userAgent, warnings
	return NewClients(config)
}

// ConnectMain is Connect for commands that need a main cluster. They would take annex itself for an
// empty one, so it is an error. If the server does not answer, the command reports that.
func (o *Options) ConnectMain(ctx context.Context, userAgent string) (*Clients, error) {
	c, err := o.connect(userAgent, restclient.NoWarnings{}) // of versions that are deprecated
	if err != nil {
		return nil, err
	}
	if c.IsAnnex(ctx) {
		return nil, fmt.Errorf("%s is annex itself, and this command needs the main cluster of an annex: "+
			"name that with --kubeconfig or $KUBECONFIG; a standalone annex has none", c.Config.Host)
	}
	return c, nil
}

// IsAnnex reports whether the server is annex itself. One that does not answer is not.
func (c *Clients) IsAnnex(ctx context.Context) bool {
	var found apimachineryversion.Info
	answer, err := c.get(ctx, "/version")
	return err == nil && json.Unmarshal(answer, &found) == nil && version.IsAnnex(found.GitVersion)
}

// ConnectAnnex is Connect for commands that need annex's own kinds, from annex or through its main
// cluster.
func (o *Options) ConnectAnnex(ctx context.Context, userAgent string) (*Clients, error) {
	c, err := o.Connect(userAgent)
	if err != nil {
		return nil, err
	}
	if _, err := c.get(ctx, "/apis/"+hostingv1alpha1.SchemeGroupVersion.String()); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s does not serve %s: it is neither annex nor a main cluster that annex is installed in",
			c.Config.Host, hostingv1alpha1.SchemeGroupVersion)
	}
	return c, nil
}

// Raw returns the body of a response, and the server's message if it is an error, which the error of Result.Raw lacks.
func Raw(result restclient.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// modeTimeout bounds a request that finds out what the server is.
const modeTimeout = 10 * time.Second

func (c *Clients) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, modeTimeout)
	defer cancel()
	return c.Kube.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
}
