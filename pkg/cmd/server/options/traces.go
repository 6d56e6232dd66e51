// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverinstall "k8s.io/apiserver/pkg/apis/apiserver/install"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/configfile"
	"github.com/annex-dev/annex/pkg/version"
)

// Traces configures tracing.
type Traces struct {
	*genericoptions.TracingOptions
}

// NewTraces returns the default: no tracing.
func NewTraces() *Traces { return &Traces{genericoptions.NewTracingOptions()} }

// ApplyTo enables tracing of generic and of its loopback clients. The service name is annex,
// because with a main cluster a trace also contains spans of its `apiserver`.
func (o *Traces) ApplyTo(ctx context.Context, generic *genericapiserver.Config) error {
	if o.ConfigFile == "" {
		return nil
	}
	config, err := readTracingConfiguration(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	// The environment variables of OpenTelemetry come last: they override the others.
	self := []resource.Option{resource.WithAttributes(
		attribute.String("service.name", "annex"),
		attribute.String("service.version", version.Annex()),
		attribute.String("service.instance.id", generic.APIServerID),
	), resource.WithFromEnv()}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(reportSpanLoss))
	provider, err := tracing.NewProvider(ctx, config, nil, self)
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %s: %w", o.ConfigFile, err)
	}
	generic.TracerProvider = boundedShutdown{provider}
	generic.LoopbackClientConfig.Wrap(tracing.WrapperFor(generic.TracerProvider))
	return nil
}

// spanFlushPeriod bounds sending the last spans at shutdown.
const spanFlushPeriod = 2 * time.Second

// boundedShutdown prevents an unavailable collector from delaying the shutdown.
type boundedShutdown struct{ tracing.TracerProvider }

// Shutdown implements tracing.TracerProvider.
func (p boundedShutdown) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, spanFlushPeriod)
	defer cancel()
	if err := p.TracerProvider.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).V(1).Info("Failed to send the last spans", "reason", err)
	}
	return nil
}

// spanLossPeriod is the interval of log messages about lost spans.
const spanLossPeriod = 10 * time.Minute

var lastSpanLoss atomic.Int64 // in seconds

// reportSpanLoss logs lost spans, rate limited. It is the process-wide error handler of
// OpenTelemetry, which calls it every few seconds while a collector is unavailable.
func reportSpanLoss(err error) {
	last, now := lastSpanLoss.Load(), time.Now().Unix()
	if now-last < int64(spanLossPeriod.Seconds()) || !lastSpanLoss.CompareAndSwap(last, now) {
		return
	}
	klog.Background().Error(err, "Failed to send spans", "nextMessageIn", spanLossPeriod)
}

func readTracingConfiguration(path string) (*tracingapi.TracingConfiguration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the tracing configuration: %w", err)
	}
	scheme := runtime.NewScheme()
	apiserverinstall.Install(scheme)
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
	config := &apiserver.TracingConfiguration{}
	if err := runtime.DecodeInto(strict, data, config); err != nil {
		return nil, configfile.Explain(path, data, err)
	}
	errs := tracingapi.ValidateTracingConfiguration(&config.TracingConfiguration, utilfeature.DefaultFeatureGate, nil)
	return &config.TracingConfiguration, configfile.Explain(path, data, errs.ToAggregate())
}
