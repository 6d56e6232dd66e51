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

// writeKubeconfig writes a kubeconfig that works wherever it is copied to, and
// leaves one alone that is already right.
func writeKubeconfig(opts Options, ca *authority, admin *leaf) error {
	path := opts.KubeconfigFile
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigName] = &clientcmdapi.Cluster{
		Server:                   opts.ServerURL,
		TLSServerName:            opts.ServerName,
		CertificateAuthorityData: ca.pem,
	}
	config.AuthInfos[AdminUser] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.pem, ClientKeyData: admin.key}
	config.Contexts[kubeconfigName] = &clientcmdapi.Context{Cluster: kubeconfigName, AuthInfo: AdminUser}
	config.CurrentContext = kubeconfigName
	want, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the admin kubeconfig: %w", err)
	}
	if err == nil && bytes.Equal(have, want) {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("reading permissions of %s: %w", path, err)
		}
		return restrict(path, info.Mode().Perm(), keyMode)
	}
	return writeAtomic(path, want, keyMode)
}
