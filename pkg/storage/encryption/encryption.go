// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryption has objects encrypted before etcd gets them, as a file says
// that may change while annex serves. What encrypts is upstream's; its own way of
// following the file looks once a minute and repeats what is wrong for ever.
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

// reloadHook is upstream's name of the hook that starts to follow the file.
const reloadHook = "start-encryption-provider-config-automatic-reload"

// healthPatience is how long the KMS plugins of a new configuration have to become
// healthy before it is refused, and healthPollInterval how often they are asked.
const (
	healthPatience     = 10 * time.Second
	healthPollInterval = 100 * time.Millisecond
)

// Apply has generic encrypt what the file at path says, and follow the file if
// reload is set. It adds the checks of KMS plugins to the readiness of generic; a
// plugin that is away does not keep annex from starting.
func Apply(generic *genericapiserver.Config, path string, reload bool) error {
	f := &follower{path: path, reload: reload, serverID: generic.APIServerID, drained: generic.DrainedNotify()}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration of encryption: %w", err)
	}
	first, err := f.load(data)
	if err != nil {
		return err
	}
	f.hash = first.EncryptionFileContentHash
	metrics.RecordEncryptionConfigLastConfigInfo(f.serverID, f.hash)
	checks := first.HealthChecks
	if reload {
		// It stands for the plugins of the configuration that is in force.
		f.transformers = encryptionconfig.NewDynamicTransformers(first.Transformers, checks[0], first.close, first.KMSCloseGracePeriod)
		generic.ResourceTransformers, checks = f.transformers, []healthz.HealthChecker{f.transformers}
		if err := generic.AddPostStartHook(reloadHook, f.start(data)); err != nil {
			return fmt.Errorf("follow the configuration of encryption: %w", err)
		}
	} else {
		generic.ResourceTransformers = encryptionconfig.StaticTransformers(first.Transformers)
	}
	// Not the liveness: a restart brings no plugin back.
	generic.HealthzChecks = append(generic.HealthzChecks, checks...)
	generic.ReadyzChecks = append(generic.ReadyzChecks, checks...)
	return nil
}

// follower puts changes of the file into force.
type follower struct {
	path     string
	reload   bool
	serverID string
	// drained is closed when nothing is read or written any more.
	drained <-chan struct{}

	transformers *encryptionconfig.DynamicTransformers
	// hash is that of the configuration in force.
	hash string
}

// loaded is a configuration with the connections to its KMS plugins, which live
// until close is called or annex stops.
type loaded struct {
	*encryptionconfig.EncryptionConfiguration
	close context.CancelFunc
}

// load reads the file again; data is what it holds, to find lines in.
func (f *follower) load(data []byte) (*loaded, error) {
	ctx, cancel := context.WithCancel(wait.ContextForChannel(f.drained))
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, f.path, f.reload, f.serverID)
	if err != nil {
		cancel()
		return nil, configfile.Explain(f.path, data, err)
	}
	return &loaded{EncryptionConfiguration: config, close: cancel}, nil
}

func (f *follower) start(data []byte) genericapiserver.PostStartHookFunc {
	return func(hook genericapiserver.PostStartHookContext) error {
		ctx := klog.NewContext(hook, klog.LoggerWithName(klog.FromContext(hook), "encryption"))
		go configfile.Watch(ctx, configfile.File{Path: f.path, Loaded: data, Apply: f.apply, Record: f.record})
		return nil
	}
}

// apply puts the file into force, for writes at once and for reads as they come.
func (f *follower) apply(ctx context.Context, data []byte) error {
	next, err := f.load(data)
	if err != nil {
		return err
	}
	if next.EncryptionFileContentHash == f.hash {
		next.close() // changed and changed back
		return nil
	}
	check := next.HealthChecks[0] // there is one in all when reloading
	if err := waitHealthy(ctx, check, max(healthPatience, next.KMSCloseGracePeriod)); err != nil {
		next.close()
		return configfile.Explain(f.path, data, err)
	}
	f.transformers.Set(next.Transformers, next.close, check, next.KMSCloseGracePeriod)
	f.hash = next.EncryptionFileContentHash
	return nil
}

func (f *follower) record(_ []byte, err error) {
	if err != nil {
		metrics.RecordEncryptionConfigAutomaticReloadFailure(f.serverID)
		return
	}
	metrics.RecordEncryptionConfigAutomaticReloadSuccess(f.serverID, f.hash)
}

// waitHealthy waits for KMS plugins that nobody has asked yet.
func waitHealthy(ctx context.Context, check healthz.HealthChecker, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz/"+check.Name(), nil)
	if err != nil {
		return fmt.Errorf("ask for the health of KMS plugins: %w", err)
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
