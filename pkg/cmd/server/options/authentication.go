// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/authentication"
)

// OpenPaths are served without authentication, for load balancers and supervisors.
var OpenPaths = []string{"/healthz", "/livez", "/readyz"}

// Authentication configures authentication.
type Authentication struct {
	ClientCAFile   string
	TokenAuthFile  string
	ConfigFile     string
	WebhookFile    string
	WebhookVersion string
	FrontProxy     *genericoptions.RequestHeaderAuthenticationOptions
}

// NewAuthentication returns the default: client certificates of annex's own CA.
func NewAuthentication() *Authentication {
	return &Authentication{
		WebhookVersion: "v1",
		// The headers are ignored without --requestheader-client-ca-file.
		FrontProxy: &genericoptions.RequestHeaderAuthenticationOptions{
			UsernameHeaders:     []string{"X-Remote-User"},
			UIDHeaders:          []string{"X-Remote-Uid"},
			GroupHeaders:        []string{"X-Remote-Group"},
			ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
		},
	}
}

// AddFlags adds flags with upstream's names and meaning.
func (o *Authentication) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"If set, client certificates of a CA in this file authenticate as their CommonName, "+
			"in addition to those of annex's own CA. It is reloaded when it changes.")
	fs.StringVar(&o.TokenAuthFile, "token-auth-file", o.TokenAuthFile,
		"File with static tokens: lines of token,user,uid,\"group1,group2\".")
	fs.StringVar(&o.ConfigFile, "authentication-config", o.ConfigFile,
		"File with an AuthenticationConfiguration: the issuers of accepted JWTs, and the paths that are open to "+
			"anonymous requests. It is reloaded when it changes. If not set, only annex's own JWTs are accepted, and only the health endpoints are open.")
	fs.StringVar(&o.WebhookFile, "authentication-token-webhook-config-file", o.WebhookFile,
		"Kubeconfig of a webhook that authenticates tokens that annex does not know.")
	fs.StringVar(&o.WebhookVersion, "authentication-token-webhook-version", o.WebhookVersion,
		"The version of the TokenReviews sent to the webhook: v1 or v1beta1.")
	o.FrontProxy.AddFlags(fs)
}

// Validate checks the flags. It does not read files.
func (o *Authentication) Validate() []error {
	return append(validateVersion("--authentication-token-webhook-version", o.WebhookVersion), o.validateFrontProxy()...)
}

func (o *Authentication) validateFrontProxy() []error {
	if o.FrontProxy.ClientCAFile == "" {
		if len(o.FrontProxy.AllowedNames) > 0 {
			return []error{errors.New("--requestheader-allowed-names needs --requestheader-client-ca-file")}
		}
		return nil
	}
	errs := named("--requestheader-client-ca-file", o.FrontProxy.Validate())
	if len(o.FrontProxy.UsernameHeaders) == 0 {
		errs = append(errs, errors.New("--requestheader-username-headers must not be empty with --requestheader-client-ca-file"))
	}
	return errs
}

// Authenticators are those that other options create.
type Authenticators struct {
	// OwnCAFile holds annex's own certificate authority.
	OwnCAFile string
	// Delegated delegates to the main cluster; nil in a standalone annex.
	Delegated authenticator.Request
	// ServiceAccounts and BootstrapTokens authenticate such tokens, or are nil.
	ServiceAccounts, BootstrapTokens authenticator.Token
	// OwnIssuers are the issuers of the tokens of ServiceAccounts.
	OwnIssuers []string
	// TokenCacheTTL is the time for which the response of a webhook is cached.
	TokenCacheTTL time.Duration
}

// ApplyTo configures the authenticators of generic, whose audiences must be set. The
// returned authenticator has to run as long as generic serves.
func (o *Authentication) ApplyTo(generic *genericapiserver.Config, others Authenticators) (*authentication.Structured, error) {
	config := authentication.Config{
		Audiences:       generic.Authentication.APIAudiences,
		Delegated:       others.Delegated,
		ServiceAccounts: others.ServiceAccounts,
		BootstrapTokens: others.BootstrapTokens,
	}
	if err := o.applyCertificates(generic, others.OwnCAFile, &config); err != nil {
		return nil, err
	}
	if o.TokenAuthFile != "" {
		tokens, err := authentication.LoadStaticTokens(o.TokenAuthFile)
		if err != nil {
			return nil, fmt.Errorf("--token-auth-file: %w", err)
		}
		config.StaticTokens = tokens
	}
	var err error
	config.Structured, err = authentication.NewStructured(authentication.StructuredOptions{
		Path: o.ConfigFile, OpenPaths: OpenPaths, OwnIssuers: others.OwnIssuers, APIServerID: generic.APIServerID,
	})
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	if o.WebhookFile != "" {
		webhook := authentication.WebhookOptions{ConfigFile: o.WebhookFile, Version: o.WebhookVersion, CacheTTL: others.TokenCacheTTL}
		if config.Webhook, err = authentication.NewWebhook(webhook, config.Audiences); err != nil {
			return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
		}
	}
	generic.Authentication.Authenticator = config.New()
	if config.KnowsTokens() {
		declareBearerTokens(generic)
	}
	return config.Structured, nil
}

// applyCertificates makes generic accept client certificates of users and of the front
// proxy.
func (o *Authentication) applyCertificates(generic *genericapiserver.Config, ownCAFile string, config *authentication.Config) error {
	clientCA, err := o.clientCA(ownCAFile)
	if err != nil {
		return err
	}
	config.ClientCA = clientCA
	if err := generic.Authentication.ApplyClientCert(clientCA, generic.SecureServing); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	if config.FrontProxy, err = o.FrontProxy.ToAuthenticationRequestHeaderConfig(); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	if config.FrontProxy == nil {
		return nil
	}
	// This also reloads the file.
	if err := generic.Authentication.ApplyClientCert(config.FrontProxy.CAContentProvider, generic.SecureServing); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	if len(o.FrontProxy.AllowedNames) == 0 {
		apart := &proxyCA{CAContentProvider: config.FrontProxy.CAContentProvider, users: clientCA}
		if err := apart.check(); err != nil {
			return err
		}
		config.FrontProxy.CAContentProvider = apart
	}
	// generic removes the headers from every request.
	generic.Authentication.RequestHeaderConfig = config.FrontProxy
	return nil
}

func (o *Authentication) clientCA(ownCAFile string) (dynamiccertificates.CAContentProvider, error) {
	own, err := dynamiccertificates.NewDynamicCAContentFromFile("annex-client-ca", ownCAFile)
	if err != nil {
		return nil, fmt.Errorf("load annex's own certificate authority: %w", err)
	}
	if o.ClientCAFile == "" {
		return own, nil
	}
	given, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return dynamiccertificates.NewUnionCAContentProvider(own, given), nil
}

// declareBearerTokens adds the authentication to the OpenAPI documents.
func declareBearerTokens(generic *genericapiserver.Config) {
	const name, kind, header, in, about = "BearerToken", "apiKey", "authorization", "header", "Bearer Token authentication"
	generic.OpenAPIConfig.SecurityDefinitions = &spec.SecurityDefinitions{name: &spec.SecurityScheme{
		SecuritySchemeProps: spec.SecuritySchemeProps{Type: kind, Name: header, In: in, Description: about},
	}}
	generic.OpenAPIV3Config.SecuritySchemes = spec3.SecuritySchemes{name: &spec3.SecurityScheme{
		SecuritySchemeProps: spec3.SecuritySchemeProps{Type: kind, Name: header, In: in, Description: about},
	}}
}
