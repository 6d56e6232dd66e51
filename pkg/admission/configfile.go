// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	policyconfig "k8s.io/apiserver/pkg/admission/plugin/policy/config"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotavalidation "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	webhookconfig "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverinstall "k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/util/webhook"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/annex-dev/annex/pkg/configfile"
)

// loaders read the configuration of each configurable plugin as the plugin does.
var loaders = map[string]func(io.Reader) error{
	mutatingwebhook.PluginName:   loadWebhookConfig,
	validatingwebhook.PluginName: loadWebhookConfig,
	mutatingpolicy.PluginName: func(reader io.Reader) error {
		config, err := policyconfig.LoadMutatingConfig(reader)
		return errors.Join(err, refuseManifests(config.StaticManifestsDir))
	},
	validatingpolicy.PluginName: func(reader io.Reader) error {
		config, err := policyconfig.LoadValidatingConfig(reader)
		return errors.Join(err, refuseManifests(config.StaticManifestsDir))
	},
	resourcequota.PluginName: func(reader io.Reader) error {
		config, err := resourcequota.LoadConfiguration(reader)
		if err != nil {
			return err
		}
		return quotavalidation.ValidateConfiguration(config).ToAggregate()
	},
}

// CheckConfigFile validates an AdmissionConfiguration; errors have file, line and field.
// Upstream exits the process for some of them, and ignores unknown plugins.
func CheckConfigFile(path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration of admission plugins: %w", err)
	}
	config, err := decodeConfig(data)
	if err != nil {
		return configfile.Explain(path, data, err)
	}
	var errs field.ErrorList
	var elsewhere []error
	seen := sets.New[string]()
	for i, plugin := range config.Plugins {
		at := field.NewPath("plugins").Index(i)
		if seen.Has(plugin.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), plugin.Name))
		}
		seen.Insert(plugin.Name)
		found, err := checkPlugin(plugin, filepath.Dir(path), at)
		errs = append(errs, found...)
		elsewhere = append(elsewhere, err)
	}
	if len(errs) > 0 {
		return configfile.Explain(path, data, errs.ToAggregate())
	}
	return errors.Join(elsewhere...)
}

func decodeConfig(data []byte) (*apiserver.AdmissionConfiguration, error) {
	scheme := runtime.NewScheme()
	apiserverinstall.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, field.NotSupported(field.NewPath("kind"), fmt.Sprintf("%T", decoded), []string{"AdmissionConfiguration"})
	}
	return config, nil
}

// checkPlugin validates one entry. The error is one in the file that the entry refers to.
func checkPlugin(plugin apiserver.AdmissionPluginConfiguration, dir string, at *field.Path) (field.ErrorList, error) {
	load, configurable := loaders[plugin.Name]
	switch {
	case !sets.New(Order()...).Has(plugin.Name):
		return field.ErrorList{field.NotSupported(at.Child("name"), plugin.Name, Order())}, nil
	case !configurable && (plugin.Configuration != nil || plugin.Path != ""):
		return field.ErrorList{field.Forbidden(at.Child("name"), "this plugin has no configuration")}, nil
	case plugin.Configuration != nil && plugin.Path != "":
		return field.ErrorList{field.Forbidden(at.Child("path"), "must not be set together with configuration")}, nil
	case plugin.Configuration != nil:
		return within(at.Child("configuration"), plugin.Configuration.Raw, load(bytes.NewReader(plugin.Configuration.Raw))), nil
	case plugin.Path != "":
		path := plugin.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return field.ErrorList{field.Invalid(at.Child("path"), plugin.Path, err.Error())}, nil
		}
		return nil, configfile.Explain(path, data, load(bytes.NewReader(data)))
	}
	return nil, nil
}

// within converts the errors of a configuration into errors of the file that contains it.
func within(at *field.Path, data []byte, err error) field.ErrorList {
	var errs field.ErrorList
	for _, one := range flatten(err) {
		var invalid *field.Error
		if errors.As(one, &invalid) {
			placed := *invalid
			placed.Field = at.String() + "." + invalid.Field
			errs = append(errs, &placed)
			continue
		}
		for _, found := range flatten(configfile.Explain("", data, one)) {
			invalid := field.Invalid(at, field.OmitValueType{}, found.Error())
			var placed *configfile.Error
			if errors.As(found, &placed) && placed.Field != "" {
				invalid.Field, invalid.Detail = at.String()+"."+placed.Field, placed.What
			}
			errs = append(errs, invalid)
		}
	}
	return errs
}

// flatten unwraps aggregated errors.
func flatten(err error) []error {
	switch list := err.(type) { //nolint:errorlint // this unwraps
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		return list.Unwrap()
	case interface{ Errors() []error }:
		return list.Errors()
	}
	return []error{err}
}

func loadWebhookConfig(reader io.Reader) error {
	config, err := webhookconfig.LoadConfig(reader)
	if err != nil {
		return err
	}
	if err := refuseManifests(config.StaticManifestsDir); err != nil {
		return err
	}
	if config.KubeConfigFile == "" {
		return nil
	}
	return checkCredentials(config.KubeConfigFile)
}

// checkCredentials validates a kubeconfig whose users are named after the webhooks that
// annex uses their credentials for. Its servers and contexts are unused.
func checkCredentials(path string) error {
	at := field.NewPath("kubeConfigFile")
	data, err := os.ReadFile(path)
	if err != nil {
		return field.Invalid(at, path, err.Error())
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Config"}
	decoder := serializer.NewCodecFactory(clientcmdlatest.Scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := decoder.Decode(data, &kind, &clientcmdv1.Config{}); err != nil {
		return field.Invalid(at, path, configfile.Explain(path, data, err).Error())
	}
	if _, err := webhook.NewDefaultAuthenticationInfoResolver(path); err != nil {
		return field.Invalid(at, path, err.Error())
	}
	return nil
}

// refuseManifests ensures that all policies and webhooks are visible in the API.
func refuseManifests(dir string) error {
	if dir == "" {
		return nil
	}
	return field.Forbidden(field.NewPath("staticManifestsDir"), "annex reads policies and webhooks from its API only")
}
