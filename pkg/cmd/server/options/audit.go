// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditvalidation "k8s.io/apiserver/pkg/apis/audit/validation"
	"k8s.io/apiserver/pkg/audit"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/annex-dev/annex/pkg/configfile"
)

// Audit configures auditing.
type Audit struct {
	*genericoptions.AuditOptions
}

// NewAudit returns upstream's defaults: no auditing.
func NewAudit() *Audit { return &Audit{genericoptions.NewAuditOptions()} }

// Validate checks the flags. Upstream silently records nothing without a policy.
func (o *Audit) Validate() []error {
	errs := o.AuditOptions.Validate()
	switch backend := o.LogOptions.Path != "" || o.WebhookOptions.ConfigFile != ""; {
	case backend && o.PolicyFile == "":
		errs = append(errs, errors.New("--audit-log-path and --audit-webhook-config-file need --audit-policy-file, which defines what is recorded"))
	case !backend && o.PolicyFile != "":
		errs = append(errs, errors.New("--audit-policy-file needs --audit-log-path or --audit-webhook-config-file"))
	}
	return errs
}

// ApplyTo applies auditing to generic. The policy is decoded strictly, unlike upstream's: a
// rule with a misspelled condition would match every request. Errors name the line.
func (o *Audit) ApplyTo(generic *genericapiserver.Config) error {
	if err := checkAuditPolicy(o.PolicyFile); err != nil {
		return fmt.Errorf("--audit-policy-file: %w", err)
	}
	if file := o.WebhookOptions.ConfigFile; file != "" {
		if _, err := configfile.LoadKubeconfig(file); err != nil {
			return fmt.Errorf("--audit-webhook-config-file: %w", err)
		}
	}
	if err := o.AuditOptions.ApplyTo(generic); err != nil {
		return fmt.Errorf("--audit-log-path, --audit-webhook-config-file: %w", err)
	}
	return nil
}

func checkAuditPolicy(path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	policy := &auditinternal.Policy{}
	strict := serializer.NewCodecFactory(audit.Scheme, serializer.EnableStrict).UniversalDecoder()
	if _, _, err := strict.Decode(data, nil, policy); err != nil {
		return configfile.Explain(path, data, err)
	}
	errs := auditvalidation.ValidatePolicy(policy)
	if len(policy.Rules) == 0 {
		errs = append(errs, field.Required(field.NewPath("rules"), "nothing would be recorded"))
	}
	return configfile.Explain(path, data, errs.ToAggregate())
}
