// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationmetrics "k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
)

// authorizers are a set that is used together.
type authorizers struct {
	authorizer authorizer.Authorizer
	rules      authorizer.RuleResolver
}

// use creates the authorizers of a valid configuration and replaces the current set.
func (a *Authorizer) use(configuration *apiserver.AuthorizationConfiguration) error {
	open, err := path.NewAuthorizer(a.config.OpenPaths)
	if err != nil {
		return fmt.Errorf("allow the paths %q to all callers: %w", a.config.OpenPaths, err)
	}
	// Configured names are in lower case and cannot collide with these two.
	chain := []union.NamedAuthorizer{
		{AuthorizerName: "PrivilegedGroup", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		{AuthorizerName: "OpenPaths", Authorizer: open},
	}
	if len(configuration.Authorizers) == 0 {
		return errNone
	}
	var rules []authorizer.RuleResolver
	for i, configured := range configuration.Authorizers {
		one, err := a.newAuthorizer(field.NewPath("authorizers").Index(i), configured)
		if err != nil {
			return err
		}
		chain = append(chain, union.NamedAuthorizer{
			AuthorizerName: configured.Name,
			Authorizer:     authorizationmetrics.InstrumentedAuthorizer(string(configured.Type), configured.Name, one),
		})
		rules = append(rules, one)
	}
	all, err := union.New(chain...)
	if err != nil {
		return fmt.Errorf("combine the authorizers: %w", err)
	}
	a.current.Store(&authorizers{authorizer: all, rules: union.NewRuleResolvers(rules...)})
	return nil
}

// newAuthorizer creates the authorizer that fldPath configures.
func (a *Authorizer) newAuthorizer(fldPath *field.Path, configured apiserver.AuthorizerConfiguration) (RuleAuthorizer, error) {
	switch configured.Type {
	case ModeRBAC:
		return a.config.RBAC, nil
	case ModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case ModeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	case ModeWebhook:
		return newWebhook(fldPath.Child("webhook"), configured.Name, configured.Webhook, a.compiler)
	default:
		return nil, field.NotSupported(fldPath.Child("type"), configured.Type, Modes())
	}
}
