// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/authentication"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
)

const (
	// defaultIssuer does not depend on annex's address, so that tokens stay valid after a
	// change of the port, and at every replica.
	defaultIssuer = "https://annex.local"

	// minMaxExpiration and maxMaxExpiration bound --service-account-max-token-expiration,
	// as in kube-apiserver.
	minMaxExpiration = time.Hour
	maxMaxExpiration = time.Duration(1<<32) * time.Second
)

// Tokens configures service account tokens and bootstrap tokens.
type Tokens struct {
	Issuers        []string
	SigningKeyFile string
	KeyFiles       []string
	KeysURI        string
	MaxExpiration  time.Duration
	Audiences      []string
	Bootstrap      bool

	// ownKeyFile signs without --service-account-signing-key-file.
	ownKeyFile string
}

// NewTokens returns the defaults: annex's own key, and bootstrap tokens.
func NewTokens() *Tokens { return &Tokens{Bootstrap: true} }

// AddFlags adds flags with upstream's names and meaning.
func (o *Tokens) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.Issuers, "service-account-issuer", o.Issuers,
		"Issuer of service account tokens, an https URL. May be repeated: the first is used for new tokens, all are accepted. "+
			"If not set: "+defaultIssuer+".")
	fs.StringVar(&o.SigningKeyFile, "service-account-signing-key-file", o.SigningKeyFile,
		"File with the private RSA or ECDSA key in PEM that signs service account tokens. Replicas need the same key. "+
			"If not set, annex creates one in --data-dir.")
	fs.StringArrayVar(&o.KeyFiles, "service-account-key-file", o.KeyFiles,
		"File with public or private RSA or ECDSA keys in PEM that verify service account tokens, in addition to the signing key. May be repeated.")
	fs.StringVar(&o.KeysURI, "service-account-jwks-uri", o.KeysURI,
		"The https URL of the keys that verify service account tokens, in the discovery document. If not set: "+serviceaccount.KeysPath+" of annex.")
	fs.DurationVar(&o.MaxExpiration, "service-account-max-token-expiration", o.MaxExpiration,
		"The maximum lifetime of service account tokens. Longer requests get this lifetime. At least 1h. 0 means no limit.")
	fs.StringSliceVar(&o.Audiences, "api-audiences", o.Audiences,
		"The audiences of annex. Tokens for other audiences are refused. If not set, the values of --service-account-issuer.")
	fs.BoolVar(&o.Bootstrap, "enable-bootstrap-token-auth", o.Bootstrap,
		"Accept bootstrap tokens, which are in Secrets of type bootstrap.kubernetes.io/token in the namespace kube-system.")
}

// Validate checks the flags. It does not read files.
func (o *Tokens) Validate() []error {
	var errs []error
	for i, issuer := range o.Issuers {
		switch {
		case issuer == "":
			errs = append(errs, fmt.Errorf("--service-account-issuer must not be empty"))
		case slices.Contains(o.Issuers[:i], issuer):
			errs = append(errs, fmt.Errorf("--service-account-issuer %q is set twice", issuer))
		case !serviceaccount.Discoverable(issuer):
			errs = append(errs, fmt.Errorf("--service-account-issuer %q must be an https URL without query and fragment", issuer))
		}
	}
	if slices.Contains(o.Audiences, "") {
		errs = append(errs, fmt.Errorf("--api-audiences must not contain an empty value"))
	}
	if uri, err := url.Parse(o.KeysURI); o.KeysURI != "" && (err != nil || uri.Scheme != "https" || uri.Host == "") {
		errs = append(errs, fmt.Errorf("--service-account-jwks-uri %q must be an https URL", o.KeysURI))
	}
	if o.MaxExpiration != 0 && (o.MaxExpiration < minMaxExpiration || o.MaxExpiration > maxMaxExpiration) {
		errs = append(errs, fmt.Errorf("--service-account-max-token-expiration %s must be between 1h and 2^32 seconds", o.MaxExpiration))
	}
	return errs
}

// OwnKey reports whether annex signs with its own key.
func (o *Tokens) OwnKey() bool { return o.SigningKeyFile == "" }

// UseOwnKey sets the path of annex's own key.
func (o *Tokens) UseOwnKey(path string) { o.ownKeyFile = path }

// ApplyTo configures the issuer in extra, and adds authenticators. It reads the keys, and
// requests the informers of objects that tokens depend on.
func (o *Tokens) ApplyTo(generic *genericapiserver.Config, extra *apiserver.ExtraConfig, kube kubernetes.Interface, kinds informers.SharedInformerFactory, authenticators *Authenticators) error {
	issuers := o.Issuers
	if len(issuers) == 0 {
		issuers = []string{defaultIssuer}
	}
	audiences := o.Audiences
	if len(audiences) == 0 {
		audiences = issuers
	}
	signing, keys, err := o.loadKeys()
	if err != nil {
		return err
	}
	issuer, err := serviceaccount.NewIssuer(issuers[0], signing)
	if err != nil {
		return fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	if extra.Discovery, err = serviceaccount.NewDiscovery(issuers[0], o.keysURI(generic), keys); err != nil {
		return fmt.Errorf("--service-account-issuer: %w", err)
	}
	extra.Tokens = serviceaccount.TokenConfig{Issuer: issuer, Audiences: audiences, MaxLifetime: o.MaxExpiration}
	generic.Authentication.APIAudiences = audiences

	core := kinds.Core().V1()
	authenticators.OwnIssuers = issuers
	authenticators.ServiceAccounts = serviceaccount.NewAuthenticator(serviceaccount.AuthenticatorConfig{
		Issuers:         issuers,
		Keys:            keys,
		Audiences:       audiences,
		ServiceAccounts: core.ServiceAccounts().Lister(),
		Secrets:         core.Secrets().Lister(),
		Live:            kube.CoreV1(),
	})
	if o.Bootstrap {
		authenticators.BootstrapTokens = authentication.NewBootstrapTokens(core.Secrets().Lister().Secrets(metav1.NamespaceSystem))
	}
	return nil
}

// loadKeys returns the signing key and all verifying keys, which include its public key.
func (o *Tokens) loadKeys() (crypto.Signer, *serviceaccount.Keys, error) {
	flag, path := "--service-account-signing-key-file", o.SigningKeyFile
	if o.OwnKey() {
		flag, path = "--data-dir", o.ownKeyFile
	}
	signing, err := serviceaccount.LoadSigningKey(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	public := []crypto.PublicKey{signing.Public()}
	for _, path := range o.KeyFiles {
		more, err := serviceaccount.LoadPublicKeys(path)
		if err != nil {
			return nil, nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		public = append(public, more...)
	}
	keys, err := serviceaccount.NewKeys(public...)
	if err != nil {
		return nil, nil, fmt.Errorf("--service-account-key-file: %w", err)
	}
	return signing, keys, nil
}

func (o *Tokens) keysURI(generic *genericapiserver.Config) string {
	if o.KeysURI != "" {
		return o.KeysURI
	}
	host := generic.ExternalAddress
	if host == "" {
		host = generic.PublicAddress.String()
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		if _, port, err := generic.SecureServing.HostPort(); err == nil {
			host = net.JoinHostPort(host, strconv.Itoa(port))
		}
	}
	return (&url.URL{Scheme: "https", Host: host, Path: serviceaccount.KeysPath}).String()
}
