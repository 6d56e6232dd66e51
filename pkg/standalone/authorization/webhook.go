// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/annex-dev/annex/pkg/configfile/kubeconfig"
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
	file := *c.ConnectionInfo.KubeConfigFile
	fldPath = fldPath.Child("connectionInfo", "kubeConfigFile")
	config, err := kubeconfig.Load(file)
	if err != nil {
		return nil, field.Invalid(fldPath, file, err.Error())
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
		return nil, field.Invalid(fldPath, file, err.Error())
	}
	return asking, nil
}
