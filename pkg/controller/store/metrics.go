// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

var (
	backupDesc = metrics.NewDesc("annex_store_last_backup_timestamp_seconds",
		"When a client last read a complete backup of a store, in seconds since the epoch; absent before the first.", []string{"store"}, nil, metrics.ALPHA, "")
	backups = &framework.Collector[*hostingv1alpha1.Store]{Desc: backupDesc, Metric: backupMetric}

	registerMetrics = sync.OnceFunc(func() { legacyregistry.CustomMustRegister(backups) })
)

func backupMetric(store *hostingv1alpha1.Store) metrics.Metric {
	if store.Status.LastBackupTime == nil {
		return nil
	}
	return metrics.NewLazyConstMetric(backupDesc, metrics.GaugeValue, float64(store.Status.LastBackupTime.Unix()), store.Name)
}
