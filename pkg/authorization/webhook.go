// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/annex-dev/annex/pkg/configfile"
)

// registerMetrics fills upstream's registry, of which a process has one.
var registerMetrics = sync.OnceFunc(func() {
	metrics.RegisterMetrics()
	webhookmetrics.RegisterWebhookMetrics()
	authorizationcel.RegisterMetrics()
})

// webhookMetrics are those that kube-apiserver has of its webhooks.
type webhookMetrics struct {
	webhookmetrics.NoopRequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}

// newWebhook makes an authorizer that asks a server. The server is not asked now.
func newWebhook(fldPath *field.Path, name string, c *apiserver.WebhookConfiguration, compiler authorizationcel.Compiler) (RuleAuthorizer, error) {
	kubeconfig := *c.ConnectionInfo.KubeConfigFile
	fldPath = fldPath.Child("connectionInfo", "kubeConfigFile")
	config, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, field.Invalid(fldPath, kubeconfig, err.Error())
	}
	config.Timeout = c.Timeout.Duration
	allowTTL, denyTTL := c.AuthorizedTTL.Duration, c.UnauthorizedTTL.Duration
	if !c.CacheAuthorizedRequests {
		allowTTL = 0
	}
	if !c.CacheUnauthorizedRequests {
		denyTTL = 0
	}
	onError := authorizer.DecisionDeny
	if c.FailurePolicy == apiserver.FailurePolicyNoOpinion {
		onError = authorizer.DecisionNoOpinion
	}
	asking, err := webhook.New(config, c.SubjectAccessReviewVersion, allowTTL, denyTTL, *webhook.DefaultRetryBackoff(), onError, c.MatchConditions, name,
		webhookMetrics{WebhookMetrics: webhookmetrics.NewWebhookMetrics(), MatcherMetrics: authorizationcel.NewMatcherMetrics()}, compiler)
	if err != nil {
		// The rest was checked before: what is left are the files that the kubeconfig names.
		return nil, field.Invalid(fldPath, kubeconfig, err.Error())
	}
	return asking, nil
}

// loadKubeconfig reads how a webhook is reached. Upstream's loader takes an empty
// file for the cluster that the process runs in.
func loadKubeconfig(path string) (*restclient.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of a webhook: %w", err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, configfile.Explain(path, data, err)
	}
	if err := clientcmd.ResolveLocalPaths(kubeconfig); err != nil {
		return nil, fmt.Errorf("%s: resolve the paths in it: %w", path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("%s: there is no context in it that names a server", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := trustworthy(config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// Every request may need an answer: what bounds the questions is what bounds
	// the requests.
	config.QPS = -1
	return config, nil
}

// trustworthy refuses servers that anybody could answer for: they say who may do
// everything.
func trustworthy(config *restclient.Config) error {
	if config.Insecure {
		return errors.New("insecure-skip-tls-verify: the webhook decides who may act, so its certificate must be verified")
	}
	url, _, err := restclient.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if url.Scheme != "https" {
		return fmt.Errorf("server: %s must be https: the webhook decides who may act", config.Host)
	}
	return nil
}
