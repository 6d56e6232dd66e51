// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
)

var minimumVersion = version.MustParseSemantic(externaletcd.MinimumVersion)

// etcdVersion refuses Stores with a member that runs too old an etcd. A Store of unknown
// version is refused by the filter Ready.
func etcdVersion(_ *framework.Resource, store *framework.Store) string {
	if store.Status.Version == "" {
		return ""
	}
	runs, err := version.ParseSemantic(store.Status.Version)
	if err != nil {
		return fmt.Sprintf("runs etcd %q, which is not a version", store.Status.Version)
	}
	if runs.LessThan(minimumVersion) {
		return fmt.Sprintf("runs etcd %s, annex needs %s or newer", runs, externaletcd.MinimumVersion)
	}
	return ""
}
