// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// dynamicCA is upstream's watched bundle of the ConfigMap.
type dynamicCA interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// preloadedCA is a bundle that is known from the first request on. Upstream's is empty
// until its informer has synced, which runs only while annex serves already: requests
// from the main cluster would get 401 meanwhile.
type preloadedCA struct {
	dynamicCA
	initial dynamiccertificates.CAContentProvider // nil if there was none
}

// load reads the bundle from the ConfigMap; it may be missing.
func (k *preloadedCA) load(trust *corev1.ConfigMap, key string) error {
	content := trust.Data[key]
	if content == "" {
		return nil
	}
	first, err := dynamiccertificates.NewStaticCAContent(k.Name(), []byte(content))
	if err != nil {
		return fmt.Errorf("%s of ConfigMap %s/%s: %w", key, trust.Namespace, trust.Name, err)
	}
	k.initial = first
	return nil
}

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (k *preloadedCA) CurrentCABundleContent() []byte {
	if content := k.dynamicCA.CurrentCABundleContent(); content != nil || k.initial == nil {
		return content
	}
	return k.initial.CurrentCABundleContent()
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (k *preloadedCA) VerifyOptions() (x509.VerifyOptions, bool) {
	if options, ok := k.dynamicCA.VerifyOptions(); ok || k.initial == nil {
		return options, ok
	}
	return k.initial.VerifyOptions()
}
