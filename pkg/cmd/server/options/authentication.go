// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openPaths are served to callers that nobody knows, because load balancers
// and supervisors ask them. Everything else needs a login.
var openPaths = []string{"/healthz", "/livez", "/readyz"}

// Authentication says who may log in: holders of a client certificate, and of
// a token from a file.
type Authentication struct {
	ClientCAFile  string
	TokenAuthFile string
}

// NewAuthentication returns the defaults: certificates of annex's own authority.
func NewAuthentication() *Authentication { return &Authentication{} }

// AddFlags adds flags with upstream's names and meaning.
func (o *Authentication) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"If set, client certificates signed by an authority in this file log in as their CommonName, "+
			"in addition to those of annex's own authority. It is read again when it changes.")
	fs.StringVar(&o.TokenAuthFile, "token-auth-file", o.TokenAuthFile,
		"If set, the file with static tokens: lines of token,user,uid,\"group1,group2\". Only the group system:masters may act.")
}

// Validate has nothing to check before the files are read.
func (o *Authentication) Validate() []error { return nil }

// ApplyTo makes generic authenticate callers; ownCAFile holds annex's own
// authority, delegated knows those of the main cluster, or is nil. The first
// authenticator that knows the caller decides.
func (o *Authentication) ApplyTo(generic *genericapiserver.Config, ownCAFile string, delegated authenticator.Request) error {
	clientCA, err := o.clientCA(ownCAFile)
	if err != nil {
		return err
	}
	if err := generic.Authentication.ApplyClientCert(clientCA, generic.SecureServing); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	authenticators := []authenticator.Request{x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion)}
	if o.TokenAuthFile != "" {
		tokens, err := tokenfile.NewCSV(o.TokenAuthFile)
		if err != nil {
			return fmt.Errorf("--token-auth-file: %w", err)
		}
		authenticators = append(authenticators, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
		declareBearerTokens(generic)
	}
	if delegated != nil {
		authenticators = append(authenticators, delegated)
	}
	known := group.NewAuthenticatedGroupAdder(union.New(authenticators...))
	generic.Authentication.Authenticator = union.NewFailOnError(known, anonymous.NewAuthenticator(anonymousConditions()))
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

func anonymousConditions() []apiserver.AnonymousAuthCondition {
	var conditions []apiserver.AnonymousAuthCondition
	for _, path := range openPaths {
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: path})
	}
	return conditions
}

// declareBearerTokens tells readers of the OpenAPI documents how to log in.
func declareBearerTokens(generic *genericapiserver.Config) {
	scheme := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
		Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication",
	}}
	generic.OpenAPIConfig.SecurityDefinitions = &spec.SecurityDefinitions{"BearerToken": scheme}
}
