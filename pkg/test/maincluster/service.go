// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// ExternalNameService creates a Service for this machine, and its namespace. An APIService with
// this Service is proxied to its port on localhost. The certificate there must be valid for
// NAME.NAMESPACE.svc.
func (c *Cluster) ExternalNameService(ctx context.Context, namespace, name string) error {
	mainClient, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	_, err = mainClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s in the main cluster: %w", namespace, err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	_, err = mainClient.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create service %s/%s in the main cluster: %w", namespace, name, err)
	}
	return nil
}

// CA returns the certificate of the cluster's CA, PEM: the caBundle of an APIService for a
// server with a ServingCertificate.
func (c *Cluster) CA() []byte { return bytes.Clone(c.identities.cluster.pem) }

// ServingCertificate returns a certificate and its key, both PEM, for a Service and localhost.
func (c *Cluster) ServingCertificate(namespace, name string) (certificate, key []byte, err error) {
	pair, err := c.identities.cluster.serving(fmt.Sprintf("%s.%s.svc", name, namespace))
	return pair.cert, pair.key, err
}

// The ConfigMap with the CA of the front proxy.
const (
	authenticationConfigMap = "extension-apiserver-authentication"
	frontProxyCAKey         = "requestheader-client-ca-file"
)

func (c *Cluster) waitForFrontProxyCA(ctx context.Context) error {
	mainClient, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var known bool
		known, last = c.knowsFrontProxyCA(ctx, mainClient)
		return known, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the new front-proxy CA is in ConfigMap %s/%s: %w", metav1.NamespaceSystem, authenticationConfigMap, errors.Join(err, last))
	}
	return nil
}

func (c *Cluster) knowsFrontProxyCA(ctx context.Context, mainClient kubernetes.Interface) (bool, error) {
	published, err := mainClient.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return strings.Contains(published.Data[frontProxyCAKey], string(bytes.TrimSpace(c.identities.frontProxy.pem))), nil
}
