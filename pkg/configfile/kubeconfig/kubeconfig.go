// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig loads the kubeconfigs that lead annex to a webhook. Upstream
// loads them as kubectl does: what it does not know it ignores, and with nothing in
// the file it looks for another server by itself. A webhook decides who may log in
// and act, or sees what everybody does: servers that anybody could stand in for
// are refused.
package kubeconfig

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

	"github.com/annex-dev/annex/pkg/configfile"
)

// decoder knows the fields of a kubeconfig and no others.
var decoder = serializer.NewCodecFactory(clientcmdlatest.Scheme, serializer.EnableStrict).UniversalDeserializer()

// Check says what is wrong with the kubeconfig at a path, with file, line and field.
// The server that it names is not asked.
func Check(path string) error {
	_, err := Load(path)
	return err
}

// Load returns how to reach the server, as often as is asked for: what bounds the
// questions to a webhook is what bounds the requests that they are about.
func Load(path string) (*restclient.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a kubeconfig: %w", err)
	}
	config, err := load(path, data)
	if err != nil {
		return nil, configfile.Explain(path, data, err)
	}
	config.QPS = -1
	return config, nil
}

func load(path string, data []byte) (*restclient.Config, error) {
	config := &clientcmdv1.Config{}
	kind := clientcmdv1.SchemeGroupVersion.WithKind("Config")
	if _, _, err := decoder.Decode(data, &kind, config); err != nil {
		return nil, err
	}
	if errs := validate(config); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	// The files that it names, and what else it can say about users.
	loaded, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(loaded); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// validate follows the current context to a server.
func validate(config *clientcmdv1.Config) field.ErrorList {
	if config.CurrentContext == "" {
		return field.ErrorList{field.Required(field.NewPath("current-context"), "it says which server is meant")}
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

// validateCluster makes sure that the server proves who it is.
func validateCluster(cluster *clientcmdv1.Cluster, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case cluster.Server == "":
		errs = append(errs, field.Required(path.Child("server"), "the URL of the webhook"))
	case !strings.HasPrefix(cluster.Server, "https://"):
		errs = append(errs, field.Invalid(path.Child("server"), cluster.Server, "must begin with https://"))
	}
	if cluster.InsecureSkipTLSVerify {
		errs = append(errs, field.Forbidden(path.Child("insecure-skip-tls-verify"), "anybody could answer for the webhook"))
	}
	return errs
}
