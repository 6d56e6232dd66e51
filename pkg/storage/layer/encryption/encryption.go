// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryption encrypts objects in etcd as an EncryptionConfiguration file defines, and
// reloads the file. Encryption is upstream's; upstream's reloading polls once a minute and
// repeats errors forever.
package encryption

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/configfile"
)

// reloadHook is upstream's name of the hook that starts reloading.
const reloadHook = "start-encryption-provider-config-automatic-reload"

// healthTimeout bounds the time until the KMS plugins of a new configuration are healthy.
const (
	healthTimeout      = 10 * time.Second
	healthPollInterval = 100 * time.Millisecond
)

// Apply configures generic with the file at path, and optionally reloads it. It adds the
// health checks of KMS plugins to generic's readiness. An unavailable plugin does not
// prevent the start.
func Apply(generic *genericapiserver.Config, path string, reload bool) error {
	r := &reloader{path: path, reload: reload, serverID: generic.APIServerID, drained: generic.DrainedNotify()}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the encryption configuration: %w", err)
	}
	first, err := r.load(data)
	if err != nil {
		return err
	}
	r.hash = first.EncryptionFileContentHash
	metrics.RecordEncryptionConfigLastConfigInfo(r.serverID, r.hash)
	checks := first.HealthChecks
	if reload {
		// The dynamic transformers are the check of the current plugins, too.
		r.transformers = encryptionconfig.NewDynamicTransformers(first.Transformers, checks[0], first.close, first.KMSCloseGracePeriod)
		generic.ResourceTransformers, checks = r.transformers, []healthz.HealthChecker{r.transformers}
		if err := generic.AddPostStartHook(reloadHook, r.start(data)); err != nil {
			return fmt.Errorf("reload the encryption configuration: %w", err)
		}
	} else {
		generic.ResourceTransformers = encryptionconfig.StaticTransformers(first.Transformers)
	}
	// Not liveness: a restart does not help.
	generic.HealthzChecks = append(generic.HealthzChecks, checks...)
	generic.ReadyzChecks = append(generic.ReadyzChecks, checks...)
	return nil
}

// reloader applies changes of the file.
type reloader struct {
	path     string
	reload   bool
	serverID string
	// drained is closed after the last request.
	drained <-chan struct{}

	transformers *encryptionconfig.DynamicTransformers
	// hash identifies the current configuration.
	hash string
}

// loaded is a configuration. close closes the connections to its KMS plugins.
type loaded struct {
	*encryptionconfig.EncryptionConfiguration
	close context.CancelFunc
}

// load reads the file. data is its content, for line numbers in errors.
func (r *reloader) load(data []byte) (*loaded, error) {
	ctx, cancel := context.WithCancel(wait.ContextForChannel(r.drained))
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, r.path, r.reload, r.serverID)
	if err != nil {
		cancel()
		return nil, configfile.Explain(r.path, data, err)
	}
	return &loaded{EncryptionConfiguration: config, close: cancel}, nil
}

func (r *reloader) start(data []byte) genericapiserver.PostStartHookFunc {
	return func(hook genericapiserver.PostStartHookContext) error {
		ctx := klog.NewContext(hook, klog.LoggerWithName(klog.FromContext(hook), "encryption"))
		go configfile.Watch(ctx, configfile.File{Path: r.path, Loaded: data, Apply: r.apply, Record: r.record})
		return nil
	}
}

func (r *reloader) apply(ctx context.Context, data []byte) error {
	next, err := r.load(data)
	if err != nil {
		return err
	}
	if next.EncryptionFileContentHash == r.hash {
		next.close() // changed and changed back
		return nil
	}
	check := next.HealthChecks[0] // with reloading there is one
	if err := waitHealthy(ctx, check, max(healthTimeout, next.KMSCloseGracePeriod)); err != nil {
		next.close()
		return configfile.Explain(r.path, data, err)
	}
	r.transformers.Set(next.Transformers, next.close, check, next.KMSCloseGracePeriod)
	r.hash = next.EncryptionFileContentHash
	return nil
}

func (r *reloader) record(_ []byte, err error) {
	if err != nil {
		metrics.RecordEncryptionConfigAutomaticReloadFailure(r.serverID)
		return
	}
	metrics.RecordEncryptionConfigAutomaticReloadSuccess(r.serverID, r.hash)
}

// waitHealthy waits for new KMS plugins.
func waitHealthy(ctx context.Context, check healthz.HealthChecker, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz/"+check.Name(), nil)
	if err != nil {
		return fmt.Errorf("check the health of KMS plugins: %w", err)
	}
	var unhealthy error
	err = wait.PollUntilContextCancel(ctx, healthPollInterval, true, func(context.Context) (bool, error) {
		unhealthy = check.Check(request)
		return unhealthy == nil, nil
	})
	if err != nil {
		return fmt.Errorf("KMS plugins are not healthy: %w", unhealthy)
	}
	return nil
}
