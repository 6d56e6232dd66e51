// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
)

// The modes, which are the types of authorizers in a file as well.
const (
	// ModeRBAC decides by roles and bindings.
	ModeRBAC = "RBAC"
	// ModeWebhook asks a server, by SubjectAccessReview.
	ModeWebhook = "Webhook"
	// ModeAlwaysAllow lets everybody who is logged in do everything.
	ModeAlwaysAllow = "AlwaysAllow"
	// ModeAlwaysDeny allows nothing.
	ModeAlwaysDeny = "AlwaysDeny"
)

// Modes returns the modes there are.
func Modes() []string { return []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeRBAC, ModeWebhook} }

// ValidateModes checks the value of --authorization-mode.
func ValidateModes(modes []string) []error {
	var errs []error
	seen := sets.New[string]()
	for _, mode := range modes {
		switch {
		case !slices.Contains(Modes(), mode):
			errs = append(errs, fmt.Errorf("there is no mode %q: use %s", mode, strings.Join(Modes(), ", ")))
		case seen.Has(mode):
			errs = append(errs, fmt.Errorf("the mode %s is named twice", mode))
		}
		seen.Insert(mode)
	}
	if len(modes) == 0 {
		errs = append(errs, errNone)
	}
	return errs
}

// Webhook is the server that the mode Webhook asks.
type Webhook struct {
	// KubeconfigFile says how to reach it.
	KubeconfigFile string
	// Version is that of the SubjectAccessReviews it gets.
	Version string
	// AllowTTL and DenyTTL are how long its answers are remembered.
	AllowTTL, DenyTTL time.Duration
}

// webhookTimeout bounds a question in the mode Webhook, as upstream does.
const webhookTimeout = 30 * time.Second

// fromModes is the configuration that the modes abbreviate.
func fromModes(modes []string, webhook Webhook) *apiserver.AuthorizationConfiguration {
	configuration := &apiserver.AuthorizationConfiguration{}
	for _, mode := range modes {
		configured := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: nameOf(mode)}
		if mode == ModeWebhook {
			configured.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL:              metav1.Duration{Duration: webhook.AllowTTL},
				CacheAuthorizedRequests:    true,
				UnauthorizedTTL:            metav1.Duration{Duration: webhook.DenyTTL},
				CacheUnauthorizedRequests:  true,
				Timeout:                    metav1.Duration{Duration: webhookTimeout},
				SubjectAccessReviewVersion: webhook.Version,
				FailurePolicy:              apiserver.FailurePolicyNoOpinion,
				ConnectionInfo: apiserver.WebhookConnectionInfo{
					Type:           apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile,
					KubeConfigFile: &webhook.KubeconfigFile,
				},
			}
		}
		configuration.Authorizers = append(configuration.Authorizers, configured)
	}
	return configuration
}

// nameOf is what an authorizer that there can be only one of is called in metrics
// and in reasons.
func nameOf(mode string) string { return strings.ToLower(mode) }

// decode reads and checks the content of a file.
func decode(compiler authorizationcel.Compiler, data []byte) (*apiserver.AuthorizationConfiguration, error) {
	configuration, err := load.LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("decode the configuration of authorizers: %w", err)
	}
	errs := validation.ValidateAuthorizationConfiguration(compiler, nil, configuration, sets.New(Modes()...), sets.New(ModeWebhook))
	for _, err := range errs {
		err.Field = withWebhook(err.Field)
	}
	for i, configured := range configuration.Authorizers {
		errs = append(errs, validateAuthorizer(field.NewPath("authorizers").Index(i), configured)...)
	}
	return configuration, errs.ToAggregate()
}

// withWebhook puts the step back into a path that upstream's validation leaves out:
// it says authorizers[0].timeout for authorizers[0].webhook.timeout.
func withWebhook(path string) string {
	authorizer, name, ok := strings.Cut(path, "].")
	first, _, _ := strings.Cut(name, ".")
	if !ok || slices.Contains([]string{"type", "name", "webhook"}, first) {
		return path
	}
	return authorizer + "].webhook." + name
}

// validateAuthorizer checks what is particular to annex.
func validateAuthorizer(fldPath *field.Path, configured apiserver.AuthorizerConfiguration) field.ErrorList {
	var errs field.ErrorList
	mode := string(configured.Type)
	if mode != ModeWebhook && slices.Contains(Modes(), mode) && configured.Name != "" && configured.Name != nameOf(mode) {
		// As in kube-apiserver: a file for one is good for the other.
		errs = append(errs, field.Invalid(fldPath.Child("name"), configured.Name, fmt.Sprintf("must be %q for the type %s", nameOf(mode), mode)))
	}
	if webhook := configured.Webhook; webhook != nil && webhook.ConnectionInfo.Type == apiserver.AuthorizationWebhookConnectionInfoTypeInCluster {
		errs = append(errs, field.Invalid(fldPath.Child("webhook", "connectionInfo", "type"), webhook.ConnectionInfo.Type,
			"annex alone is its own cluster and would ask itself: use "+apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile))
	}
	return errs
}
