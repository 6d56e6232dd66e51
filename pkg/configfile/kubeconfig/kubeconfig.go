// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig checks the kubeconfigs that lead annex to a webhook. Upstream
// loads them as kubectl does: what it does not know it ignores, and with nothing in
// the file it looks for another server by itself.
package kubeconfig

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read a kubeconfig: %w", err)
	}
	kind := clientcmdv1.SchemeGroupVersion.WithKind("Config")
	return configfile.Explain(path, data, check(path, data, &kind))
}

func check(path string, data []byte, kind *schema.GroupVersionKind) error {
	config := &clientcmdv1.Config{}
	if _, _, err := decoder.Decode(data, kind, config); err != nil {
		return err
	}
	if errs := validate(config); len(errs) > 0 {
		return errs.ToAggregate()
	}
	// The files that it names, and what else it can say about users.
	loaded, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	if err := clientcmd.ResolveLocalPaths(loaded); err != nil {
		return err
	}
	return clientcmd.ConfirmUsable(*loaded, "")
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
	switch {
	case context.AuthInfo == "":
		errs = append(errs, field.Required(path.Child("user"), "it may be one without credentials"))
	case !slices.ContainsFunc(config.AuthInfos, func(u clientcmdv1.NamedAuthInfo) bool { return u.Name == context.AuthInfo }):
		errs = append(errs, field.NotFound(path.Child("user"), context.AuthInfo))
	}
	at = slices.IndexFunc(config.Clusters, func(c clientcmdv1.NamedCluster) bool { return c.Name == context.Cluster })
	switch {
	case at < 0:
		errs = append(errs, field.NotFound(path.Child("cluster"), context.Cluster))
	case config.Clusters[at].Cluster.Server == "":
		errs = append(errs, field.Required(field.NewPath("clusters").Index(at).Child("cluster", "server"), "the URL of the webhook"))
	}
	return errs
}
