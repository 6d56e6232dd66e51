// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const kubeconfigName = "annex"

// Kubeconfig is a self-contained kubeconfig of one user of annex.
type Kubeconfig struct {
	// ServerURL is the address of annex, and ServerName the name in its certificate, if
	// that differs.
	ServerURL, ServerName string
	// Authority verifies annex, in PEM.
	Authority []byte
	// Context is the name of the context.
	Context string
	// User is the name of the user, with the certificate and key in PEM.
	User            string
	CertPEM, KeyPEM []byte
}

// Encode returns the kubeconfig as YAML.
func (k Kubeconfig) Encode() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigName] = &clientcmdapi.Cluster{
		Server:                   k.ServerURL,
		TLSServerName:            k.ServerName,
		CertificateAuthorityData: k.Authority,
	}
	config.AuthInfos[k.User] = &clientcmdapi.AuthInfo{ClientCertificateData: k.CertPEM, ClientKeyData: k.KeyPEM}
	config.Contexts[k.Context] = &clientcmdapi.Context{Cluster: kubeconfigName, AuthInfo: k.User}
	config.CurrentContext = k.Context
	return clientcmd.Write(*config)
}

// writeKubeconfig writes the administrator's kubeconfig if it differs.
func writeKubeconfig(opts Options, ca *Authority, admin *Pair) error {
	path := opts.KubeconfigFile
	want, err := Kubeconfig{
		ServerURL: opts.ServerURL, ServerName: opts.ServerName, Authority: ca.CertPEM(),
		Context: kubeconfigName, User: AdminUser, CertPEM: admin.CertPEM, KeyPEM: admin.KeyPEM,
	}.Encode()
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the admin kubeconfig: %w", err)
	}
	if err == nil && bytes.Equal(have, want) {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read permissions of %s: %w", path, err)
		}
		return restrict(path, info.Mode().Perm(), keyMode)
	}
	return writeFile(path, want, keyMode)
}
