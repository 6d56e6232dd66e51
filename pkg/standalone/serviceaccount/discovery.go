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
	// ConfigurationPath is the path of the OpenID Connect discovery document.
	ConfigurationPath = "/.well-known/openid-configuration"
	// KeysPath is the path of the keys, as in Kubernetes.
	KeysPath = "/openid/v1/jwks"

	// cacheControl lets relying parties cache the documents for an hour, as Kubernetes
	// does: a new key must be published for that long before it signs.
	cacheControl = "public, max-age=3600"
)

// Discovery serves the documents with which relying parties verify tokens.
type Discovery struct {
	configuration, keys []byte
}

// metadata are the fields that OpenID Connect Discovery requires and Kubernetes
// publishes.
type metadata struct {
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// NewDiscovery returns the documents of an issuer, whose keys are at keysURI.
func NewDiscovery(issuer, keysURI string, keys *Keys) (*Discovery, error) {
	if !Discoverable(issuer) {
		return nil, fmt.Errorf("%q is not an https URL without query and fragment, as OpenID Connect requires for an issuer", issuer)
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

// document serves one document.
func document(content []byte, contentType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are served here", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", cacheControl)
		// It fails only if the client disconnected.
		_, _ = w.Write(content)
	})
}
