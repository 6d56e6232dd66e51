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

// Traces says where spans of requests are sent.
type Traces struct {
	*genericoptions.TracingOptions
}

// NewTraces returns the default: nowhere.
func NewTraces() *Traces { return &Traces{genericoptions.NewTracingOptions()} }

// ApplyTo has generic make spans, and its loopback clients pass on which trace they
// belong to. The server sends the last ones when it stops.
//
// Upstream calls every server `apiserver`; behind a main cluster two kinds of them
// have part in one trace.
func (o *Traces) ApplyTo(ctx context.Context, generic *genericapiserver.Config) error {
	if o.ConfigFile == "" {
		return nil
	}
	config, err := readTracingConfiguration(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	// Who set the variables of OpenTelemetry knows better, so they come last.
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

// spanFlushPeriod is how long a stop waits for the last spans to be sent.
const spanFlushPeriod = 2 * time.Second

// boundedShutdown keeps a collector that is away from holding up a stop: upstream
// waits for as long as it takes.
type boundedShutdown struct{ tracing.TracerProvider }

// Shutdown sends the spans that are left.
func (p boundedShutdown) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, spanFlushPeriod)
	defer cancel()
	if err := p.TracerProvider.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).V(1).Info("The last spans were not sent", "reason", err)
	}
	return nil
}

// spanLossPeriod is how often it is said that spans are lost.
const spanLossPeriod = 10 * time.Minute

var lastSpanLoss atomic.Int64 // in seconds

// reportSpanLoss says now and then that spans cannot be sent. OpenTelemetry has one
// handler for a process, and calls it every few seconds while a collector is away.
func reportSpanLoss(err error) {
	last, now := lastSpanLoss.Load(), time.Now().Unix()
	if now-last < int64(spanLossPeriod.Seconds()) || !lastSpanLoss.CompareAndSwap(last, now) {
		return
	}
	klog.Background().Error(err, "Spans are lost", "saidAgainIn", spanLossPeriod)
}

func readTracingConfiguration(path string) (*tracingapi.TracingConfiguration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of tracing: %w", err)
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
