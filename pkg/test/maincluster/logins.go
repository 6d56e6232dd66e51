// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/annex-dev/annex/pkg/test/freeport"
)

// tokenLifetime is longer than any test or demo.
const tokenLifetime = 24 * time.Hour

// writeKubeconfigs writes the kubeconfigs of the administrator and of the controllers.
func (c *Cluster) writeKubeconfigs() error {
	c.URL = "https://" + freeport.Address(c.port)
	if c.balancer != nil {
		c.URL = "https://" + c.balancer.Address()
	}
	c.Kubeconfig = filepath.Join(c.Dir, adminKubeconfig)
	if err := c.writeKubeconfig(c.Kubeconfig, &clientcmdapi.AuthInfo{Token: c.identities.adminToken}); err != nil {
		return err
	}
	if err := c.writeKubeconfig(filepath.Join(c.Dir, controllerKubecfg), &clientcmdapi.AuthInfo{Token: c.identities.controllersToken}); err != nil {
		return err
	}
	if err := c.writeWebhookLogin(); err != nil {
		return err
	}
	var err error
	c.Config, err = loadKubeconfig(c.Kubeconfig)
	return err
}

// WebhookClientName is the common name of the certificate that the API server presents to webhooks.
const WebhookClientName = "main-apiserver"

// AdmissionConfig is the file of the admission configuration that gives webhooks this certificate.
func (c *Cluster) AdmissionConfig() string { return filepath.Join(c.Dir, admissionConfig) }

// ClientCA is the file of the CA of all client certificates.
func (c *Cluster) ClientCA() string { return filepath.Join(c.Dir, clusterCAFile) }

func (c *Cluster) writeWebhookLogin() error {
	login := filepath.Join(c.Dir, webhookKubeconfig)
	if err := c.writeLogin(login, WebhookClientName); err != nil {
		return err
	}
	return replaceFile(c.AdmissionConfig(), fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}
`, login))
}

func loadKubeconfig(path string) (*restclient.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the main cluster: %w", err)
	}
	config.QPS = -1
	config.DisableCompression = true // it costs more than loopback does
	return config, nil
}

// KubeconfigFor writes a kubeconfig with a client certificate for a user, and returns its path.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	path := c.newKubeconfigPath()
	return path, c.writeLogin(path, user, groups...)
}

// ConfigFor is KubeconfigFor as a client configuration, without a rate limit.
func (c *Cluster) ConfigFor(user string, groups ...string) (*restclient.Config, error) {
	path, err := c.KubeconfigFor(user, groups...)
	if err != nil {
		return nil, err
	}
	return loadKubeconfig(path)
}

// ServiceAccountKubeconfig writes a kubeconfig with a token for an existing service account, and
// returns its path.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	mainClient, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return "", fmt.Errorf("create a client of the main cluster: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLifetime.Seconds()))}}
	granted, err := mainClient.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token for service account %s/%s of the main cluster: %w", namespace, name, err)
	}
	path := c.newKubeconfigPath()
	return path, c.writeKubeconfig(path, &clientcmdapi.AuthInfo{Token: granted.Status.Token})
}

func (c *Cluster) newKubeconfigPath() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kubeconfigs++
	return filepath.Join(c.Dir, fmt.Sprintf("login-%d.kubeconfig", c.kubeconfigs))
}

func (c *Cluster) writeLogin(path, user string, groups ...string) error {
	login, err := c.identities.cluster.client(user, groups...)
	if err != nil {
		return err
	}
	return c.writeKubeconfig(path, &clientcmdapi.AuthInfo{ClientCertificateData: login.cert, ClientKeyData: login.key})
}

func (c *Cluster) writeKubeconfig(path string, login *clientcmdapi.AuthInfo) error {
	const name, user = "main", "user"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.identities.cluster.pem}
	config.AuthInfos[user] = login
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return replaceFile(path, content)
}

// RotateFrontProxyCA replaces CA and client certificate of the front proxy at once: an
// aggregated API server that has not read the new CA refuses proxied requests. It returns when
// the main cluster has published the new CA in ConfigMap
// kube-system/extension-apiserver-authentication.
func (c *Cluster) RotateFrontProxyCA(ctx context.Context) error {
	if err := c.identities.renewFrontProxy(c.Dir); err != nil {
		return err
	}
	return c.waitForFrontProxyCA(ctx)
}
