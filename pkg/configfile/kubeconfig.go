// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// kubeconfigDecoder rejects unknown fields.
var kubeconfigDecoder = serializer.NewCodecFactory(clientcmdlatest.Scheme, serializer.EnableStrict).UniversalDeserializer()

// LoadKubeconfig returns the configuration of a webhook's client from the kubeconfig at a path, or errors
// with file, line and field. It is stricter than upstream, which loads these files as kubectl does: it
// ignores unknown fields, and uses another server if the file is empty. A webhook decides about logins and
// authorization, or receives all audit events, so a server without verified identity is rejected.
//
// The client has no rate limit: calls of a webhook are limited as the requests that cause them.
func LoadKubeconfig(path string) (*restclient.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a kubeconfig: %w", err)
	}
	config, err := loadKubeconfig(path, data)
	if err != nil {
		return nil, Explain(path, data, err)
	}
	config.QPS = -1
	return config, nil
}

func loadKubeconfig(path string, data []byte) (*restclient.Config, error) {
	config := &clientcmdv1.Config{}
	kind := clientcmdv1.SchemeGroupVersion.WithKind("Config")
	if _, _, err := kubeconfigDecoder.Decode(data, &kind, config); err != nil {
		return nil, err
	}
	if errs := validateKubeconfig(config); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	// The files that it names, and errors of users.
	loaded, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(loaded); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// validateKubeconfig follows the current context to a server.
func validateKubeconfig(config *clientcmdv1.Config) field.ErrorList {
	if config.CurrentContext == "" {
		return field.ErrorList{field.Required(field.NewPath("current-context"), "it selects the server")}
	}
	at := slices.IndexFunc(config.Contexts, func(c clientcmdv1.NamedContext) bool { return c.Name == config.CurrentContext })
	if at < 0 {
		return field.ErrorList{field.NotFound(field.NewPath("current-context"), config.CurrentContext)}
	}
	path, context := field.NewPath("contexts").Index(at).Child("context"), config.Contexts[at].Context
	var errs field.ErrorList
	if context.AuthInfo != "" && !slices.ContainsFunc(config.AuthInfos, func(u clientcmdv1.NamedAuthInfo) bool { return u.Name == context.AuthInfo }) {
		errs = append(errs, field.NotFound(path.Child("user"), context.AuthInfo))
	}
	at = slices.IndexFunc(config.Clusters, func(c clientcmdv1.NamedCluster) bool { return c.Name == context.Cluster })
	if at < 0 {
		return append(errs, field.NotFound(path.Child("cluster"), context.Cluster))
	}
	return append(errs, validateCluster(&config.Clusters[at].Cluster, field.NewPath("clusters").Index(at).Child("cluster"))...)
}

// validateCluster checks that the identity of the server is verified.
func validateCluster(cluster *clientcmdv1.Cluster, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case cluster.Server == "":
		errs = append(errs, field.Required(path.Child("server"), "the URL of the webhook"))
	case !strings.HasPrefix(cluster.Server, "https://"):
		errs = append(errs, field.Invalid(path.Child("server"), cluster.Server, "must begin with https://"))
	}
	if cluster.InsecureSkipTLSVerify {
		errs = append(errs, field.Forbidden(path.Child("insecure-skip-tls-verify"), "any server could answer as the webhook"))
	}
	return errs
}
