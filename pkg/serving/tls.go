// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// newTLSConfig returns the configuration of upstream's server, and the controller that
// reloads its certificates. Upstream runs their sources.
func newTLSConfig(info *genericapiserver.SecureServingInfo) (*tls.Config, *dynamiccertificates.DynamicServingCertificateController, error) {
	config := &tls.Config{
		MinVersion:       max(tls.VersionTLS12, info.MinTLSVersion),
		CipherSuites:     info.CipherSuites,
		CurvePreferences: info.CurvePreferences,
		NextProtos:       []string{"h2", "http/1.1"},
	}
	if info.DisableHTTP2 {
		config.NextProtos = []string{"http/1.1"}
	}
	if info.ClientCA != nil {
		// Requested and not verified here: there are other ways to log in.
		config.ClientAuth = tls.RequestClientCert
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(config, info.ClientCA, info.Cert, info.SNICerts, nil)
	if info.ClientCA != nil {
		info.ClientCA.AddListener(controller)
	}
	if info.Cert != nil {
		info.Cert.AddListener(controller)
	}
	for _, cert := range info.SNICerts {
		cert.AddListener(controller)
	}
	if err := controller.RunOnce(); err != nil {
		return nil, nil, fmt.Errorf("load the serving certificates: %w", err)
	}
	serving := config.Clone()
	serving.GetConfigForClient = controller.GetConfigForClient
	return serving, controller, nil
}
