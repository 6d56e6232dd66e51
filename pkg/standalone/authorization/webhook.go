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

	"github.com/annex-dev/annex/pkg/configfile"
)

// registerMetrics adds the metrics to upstream's registry, which is global.
var registerMetrics = sync.OnceFunc(func() {
	metrics.RegisterMetrics()
	webhookmetrics.RegisterWebhookMetrics()
	authorizationcel.RegisterMetrics()
})

// webhookMetrics are kube-apiserver's metrics of authorization webhooks.
type webhookMetrics struct {
	webhookmetrics.NoopRequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}

// newWebhook creates an authorizer that calls a server. It sends no request.
func newWebhook(fldPath *field.Path, name string, c *apiserver.WebhookConfiguration, compiler authorizationcel.Compiler) (RuleAuthorizer, error) {
	file := *c.ConnectionInfo.KubeConfigFile
	fldPath = fldPath.Child("connectionInfo", "kubeConfigFile")
	config, err := configfile.LoadKubeconfig(file)
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
		// The rest was validated before; only the files that the kubeconfig names can
		// fail.
		return nil, field.Invalid(fldPath, file, err.Error())
	}
	return asking, nil
}
