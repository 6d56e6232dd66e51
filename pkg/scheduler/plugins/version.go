// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/storage/externaletcd"
)

func init() { registered.AddFilter("Version", etcdVersion) }

var minimumVersion = version.MustParseSemantic(externaletcd.MinimumVersion)

// etcdVersion refuses a Store with a member that runs an etcd too old for annex. One
// whose version is not known is another filter's business: it is not ready.
func etcdVersion(_ *framework.Resource, store *framework.Store) string {
	if store.Status.Version == "" {
		return ""
	}
	runs, err := version.ParseSemantic(store.Status.Version)
	if err != nil {
		return fmt.Sprintf("runs etcd %q, which is no version", store.Status.Version)
	}
	if runs.LessThan(minimumVersion) {
		return fmt.Sprintf("runs etcd %s, annex needs %s or newer", runs, externaletcd.MinimumVersion)
	}
	return ""
}
