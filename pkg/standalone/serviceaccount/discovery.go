// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	jose "gopkg.in/go-jose/go-jose.v2"
)

const (
	// ConfigurationPath is where OpenID Connect has the description of an issuer.
	ConfigurationPath = "/.well-known/openid-configuration"
	// KeysPath is where Kubernetes has the keys of its tokens.
	KeysPath = "/openid/v1/jwks"

	// cacheControl lets relying parties keep what they read for an hour, as
	// Kubernetes does: a new key must be published for that long before it signs.
	cacheControl = "public, max-age=3600"
)

// Discovery is what relying parties verify tokens with.
type Discovery struct {
	configuration, keys []byte
}

// metadata is what OpenID Connect Discovery requires and Kubernetes publishes.
type metadata struct {
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// NewDiscovery returns the documents about an issuer, whose keys are at keysURI.
func NewDiscovery(issuer, keysURI string, keys *Keys) (*Discovery, error) {
	if !Discoverable(issuer) {
		return nil, fmt.Errorf("%q is not an https URL without query and fragment, which OpenID Connect wants of an issuer", issuer)
	}
	configuration, err := json.Marshal(metadata{
		Issuer:        issuer,
		KeysURI:       keysURI,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		Algorithms:    keys.algorithms(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the description of the issuer: %w", err)
	}
	published, err := json.Marshal(jose.JSONWebKeySet{Keys: keys.published})
	if err != nil {
		return nil, fmt.Errorf("encode the issuer's keys: %w", err)
	}
	return &Discovery{configuration: configuration, keys: published}, nil
}

// Discoverable reports whether OpenID Connect allows the name of an issuer.
func Discoverable(issuer string) bool {
	parsed, err := url.Parse(issuer)
	return err == nil && parsed.Scheme == "https" && parsed.Host != "" && parsed.RawQuery == "" && parsed.Fragment == ""
}

// Install serves the documents at their paths.
func (d *Discovery) Install(mux interface {
	Handle(path string, handler http.Handler)
}) {
	mux.Handle(ConfigurationPath, document(d.configuration, "application/json"))
	mux.Handle(KeysPath, document(d.keys, "application/jwk-set+json"))
}

// document serves one document to those that read it.
func document(content []byte, contentType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are served here", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", cacheControl)
		// A reader that is gone needs no answer.
		_, _ = w.Write(content)
	})
}
