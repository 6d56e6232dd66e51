// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization authorizes requests in a standalone annex: the group
// system:masters may do everything, the health endpoints are open, and the configured
// authorizers decide on the rest in their order. A request that none allows is denied.
package authorization

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"

	"github.com/annex-dev/annex/pkg/configfile"
)

// RuleAuthorizer is an authorizer that can list a user's rules.
type RuleAuthorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Config configures the authorizers, by either Modes or File.
type Config struct {
	// Modes are tried in their order.
	Modes []string
	// Webhook configures the mode Webhook.
	Webhook Webhook
	// File is the path of an AuthorizationConfiguration. Run reloads it.
	File string

	// RBAC authorizes by roles and bindings.
	RBAC RuleAuthorizer
	// OpenPaths may be read by all callers.
	OpenPaths []string
	// ServerID identifies the replica in the metrics of reloads.
	ServerID string
}

// Authorizer authorizes with the current set of authorizers, which is replaced as a
// whole.
type Authorizer struct {
	config   Config
	compiler authorizationcel.Compiler

	loaded  []byte // what Run compares the file with
	current atomic.Pointer[authorizers]
}

// New creates the authorizers. The error for an invalid file names lines and fields.
func New(config Config) (*Authorizer, error) {
	a := &Authorizer{config: config, compiler: authorizationcel.NewDefaultCompiler()}
	registerMetrics()
	if config.File == "" {
		if err := a.use(fromModes(config.Modes, config.Webhook)); err != nil {
			return nil, withoutField(err)
		}
		return a, nil
	}
	data, err := os.ReadFile(config.File)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of authorizers: %w", err)
	}
	if err := a.load(data); err != nil {
		return nil, err
	}
	a.loaded = data
	metrics.RecordAuthorizationConfigLastConfigInfo(config.ServerID, string(data))
	return a, nil
}

// Run reloads the file until ctx is done. An invalid file changes nothing.
func (a *Authorizer) Run(ctx context.Context) {
	if a.config.File == "" {
		return
	}
	configfile.Watch(ctx, configfile.File{
		Path:   a.config.File,
		Loaded: a.loaded,
		Apply:  func(_ context.Context, data []byte) error { return a.load(data) },
		Record: func(data []byte, err error) {
			if err != nil {
				metrics.RecordAuthorizationConfigAutomaticReloadFailure(a.config.ServerID)
			} else {
				metrics.RecordAuthorizationConfigAutomaticReloadSuccess(a.config.ServerID, string(data))
			}
		},
	})
}

// Authorize authorizes with the current authorizers.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.current.Load().authorizer.Authorize(ctx, attributes)
}

// ConditionsAwareAuthorize is Authorize for callers that can evaluate conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return a.current.Load().authorizer.ConditionsAwareAuthorize(ctx, attributes)
}

// EvaluateConditions evaluates conditions that ConditionsAwareAuthorize returned.
// Conditions of an authorizer that was replaced are not met.
func (a *Authorizer) EvaluateConditions(ctx context.Context, decision authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return a.current.Load().authorizer.EvaluateConditions(ctx, decision, data)
}

// RulesFor lists a user's rules in a namespace, as far as the authorizers can: a
// webhook cannot.
func (a *Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	return a.current.Load().rules.RulesFor(ctx, who, namespace)
}

// load applies the content of the file.
func (a *Authorizer) load(data []byte) error {
	configuration, err := decode(a.compiler, data)
	if err == nil {
		err = a.use(configuration)
	}
	return configfile.Explain(a.config.File, data, err)
}

// withoutField drops the field from an error about flags, which have no fields.
func withoutField(err error) error {
	var invalid *field.Error
	if errors.As(err, &invalid) {
		return errors.New(invalid.Detail)
	}
	return err
}

// errNone keeps a server from starting that would deny everything because it has no
// authorizer.
var errNone = errors.New("there is no authorizer")
