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

// The modes, which are also the types of authorizers in a file.
const (
	// ModeRBAC authorizes by roles and bindings.
	ModeRBAC = "RBAC"
	// ModeWebhook sends SubjectAccessReviews to a server.
	ModeWebhook = "Webhook"
	// ModeAlwaysAllow allows everything to authenticated callers.
	ModeAlwaysAllow = "AlwaysAllow"
	// ModeAlwaysDeny allows nothing.
	ModeAlwaysDeny = "AlwaysDeny"
)

// Modes returns all modes.
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

// Webhook configures the server of the mode Webhook.
type Webhook struct {
	// KubeconfigFile is its kubeconfig.
	KubeconfigFile string
	// Version is the API version of the SubjectAccessReviews.
	Version string
	// Responses are cached for AllowTTL or DenyTTL.
	AllowTTL, DenyTTL time.Duration
}

// webhookTimeout bounds a request in the mode Webhook, as upstream's does.
const webhookTimeout = 30 * time.Second

// fromModes returns the configuration that modes are short for.
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

// nameOf is the name, in metrics and reasons, of an authorizer that exists only once.
func nameOf(mode string) string { return strings.ToLower(mode) }

// decode reads and validates the content of a file.
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

// withWebhook restores the step of a path that upstream's validation omits: it reports
// authorizers[0].timeout for authorizers[0].webhook.timeout.
func withWebhook(path string) string {
	authorizer, name, ok := strings.Cut(path, "].")
	first, _, _ := strings.Cut(name, ".")
	if !ok || slices.Contains([]string{"type", "name", "webhook"}, first) {
		return path
	}
	return authorizer + "].webhook." + name
}

// validateAuthorizer checks annex's own restrictions.
func validateAuthorizer(fldPath *field.Path, configured apiserver.AuthorizerConfiguration) field.ErrorList {
	var errs field.ErrorList
	mode := string(configured.Type)
	if mode != ModeWebhook && slices.Contains(Modes(), mode) && configured.Name != "" && configured.Name != nameOf(mode) {
		// The same as in kube-apiserver, so that one file works for both.
		errs = append(errs, field.Invalid(fldPath.Child("name"), configured.Name, fmt.Sprintf("must be %q for the type %s", nameOf(mode), mode)))
	}
	if webhook := configured.Webhook; webhook != nil && webhook.ConnectionInfo.Type == apiserver.AuthorizationWebhookConnectionInfoTypeInCluster {
		errs = append(errs, field.Invalid(fldPath.Child("webhook", "connectionInfo", "type"), webhook.ConnectionInfo.Type,
			"a standalone annex would send reviews to itself: use "+apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile))
	}
	return errs
}
