// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/stores"
)

// hint says what to do about a store that is not ready, empty if there is nothing.
// Annex looks again by itself, so no hint tells to have it do so.
func hint(store *hostingv1alpha1.Store, seen *stores.Snapshot, reason string) string {
	adopt := fmt.Sprintf("set the annotation %s=%s", hostingv1alpha1.AdoptClusterAnnotation, stores.FormatClusterID(seen.Cluster))
	endpoints, credentials := "spec.etcd.endpoints", "spec.etcd.tls"
	if store.Name == hostingv1alpha1.DefaultStoreName {
		// It takes no other cluster for its own: the command line says which it is.
		adopt, endpoints, credentials = "start annex again", "--etcd-servers", "--etcd-cafile, --etcd-certfile and --etcd-keyfile"
	}
	switch reason {
	case stores.ReasonUnreachable:
		return fmt.Sprintf("Start the etcd, or correct %s or %s", endpoints, credentials)
	case stores.ReasonNoQuorum:
		return "Start the members that are down: a majority is needed"
	case stores.ReasonTooOld:
		return "Upgrade etcd"
	case stores.ReasonCorrupt:
		return "Follow etcd's own instructions for data corruption"
	case stores.ReasonBadCredentials:
		return "Put the Secret right and let annex read it, or correct " + credentials
	case stores.ReasonCertificateExpired:
		return "Renew the certificate in the Secret"
	case stores.ReasonWrongCluster:
		if seen.Cluster == 0 {
			return "Correct " + endpoints
		}
		return fmt.Sprintf("Correct %s; only if the cluster found has the data of this Store, %s", endpoints, adopt)
	case stores.ReasonDataReplaced, stores.ReasonRolledBack, stores.ReasonDiverged:
		return "Restore the data; only if annex is to go on with what is there, " + adopt
	case stores.ReasonNewerFormat:
		return "Upgrade annex"
	case stores.ReasonNotEmpty:
		return "Make a Store with another keyPrefix, or delete those keys"
	case stores.ReasonInUse:
		return "Make a Store with another keyPrefix; only if the other one no longer exists, " + adopt
	}
	return ""
}
