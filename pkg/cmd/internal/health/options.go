// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"strings"

	"github.com/annex-dev/annex/artifacts/deploy"
	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
)

// Options select what is checked.
type Options struct {
	// Service is the Service in the main cluster through which it reaches annex. If not ServiceGiven, the APIService of annex's
	// group names it, if that is there.
	Service      maincluster.Service
	ServiceGiven bool
	// ServiceAccount is annex's, in the namespace of the Service.
	ServiceAccount string
	// AnnexServer is an address of annex that can be reached from here, or empty.
	AnnexServer string
	// Save and Compare are files with a summary of the main cluster's OpenAPI documents, or empty.
	Save, Compare string
	// Program begins the commands that findings name: "annex" or "kubectl annex".
	Program string
}

// DefaultOptions is an annex from artifacts/deploy.
func DefaultOptions(program string) Options {
	return Options{Service: maincluster.DefaultService(), ServiceAccount: manifestServiceAccount, Program: program}
}

// RBACManifest returns the roles that annex needs in the main cluster, and their bindings.
func (o *Options) RBACManifest() string {
	manifest := deploy.RBAC
	if o.Service.Namespace != manifestNamespace {
		manifest = strings.ReplaceAll(manifest, "namespace: "+manifestNamespace, "namespace: "+o.Service.Namespace)
	}
	if o.Service.Name != manifestService {
		for of, name := range map[string]string{manifestLease: o.Service.Lease(), manifestSecret: servingca.SecretName(o.Service.Name)} {
			manifest = strings.ReplaceAll(manifest, "resourceNames: ["+of+"]", "resourceNames: ["+name+"]")
		}
	}
	if o.ServiceAccount != manifestServiceAccount {
		subject := "- kind: ServiceAccount\n  name: "
		manifest = strings.ReplaceAll(manifest, subject+manifestServiceAccount+"\n", subject+o.ServiceAccount+"\n")
	}
	return manifest
}
