// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// codecs are strict: a misspelled field is an error.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
})

// load decodes and checks a configuration.
func (s *Structured) load(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	decoded, kind, err := codecs().UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, field.NotSupported(field.NewPath("kind"), kind.Kind, []string{"AuthenticationConfiguration"})
	}
	errs := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config, s.options.OwnIssuers)
	return config, append(errs, validateOwn(config)...).ToAggregate()
}

// validateOwn rejects what kube-apiserver accepts and annex does not.
func validateOwn(config *apiserver.AuthenticationConfiguration) field.ErrorList {
	var errs field.ErrorList
	for i, jwt := range config.JWT {
		if egress := jwt.Issuer.EgressSelectorType; egress != "" {
			errs = append(errs, field.Invalid(field.NewPath("jwt").Index(i).Child("issuer", "egressSelectorType"), egress, "annex has no egress selector"))
		}
	}
	// Without conditions every path would be open to anonymous requests, and only
	// authorization would restrict them.
	if anonymous := config.Anonymous; anonymous != nil && anonymous.Enabled {
		conditions := field.NewPath("anonymous", "conditions")
		if len(anonymous.Conditions) == 0 {
			errs = append(errs, field.Required(conditions, "name the paths that callers may use without a login"))
		}
		for i, condition := range anonymous.Conditions {
			if len(condition.Path) == 0 || condition.Path[0] != '/' {
				errs = append(errs, field.Invalid(conditions.Index(i).Child("path"), condition.Path, "must begin with /"))
			}
		}
	}
	return errs
}
