// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

// overrides has the fields that CEL rules require, by kind and group.
var overrides = map[string]map[string]any{
	// Exactly one trust source.
	"BackendTLSPolicy.gateway.networking.k8s.io": {"spec": map[string]any{
		"validation": map[string]any{"wellKnownCACertificates": "System"},
	}},
	// A Service as backend needs a port.
	"TCPRoute.gateway.networking.k8s.io": {"spec": map[string]any{"rules": routeRules()}},
	"TLSRoute.gateway.networking.k8s.io": {"spec": map[string]any{"rules": routeRules()}},
	"UDPRoute.gateway.networking.k8s.io": {"spec": map[string]any{"rules": routeRules()}},
	// The type requires a field of its name.
	"XBackend.gateway.networking.x-k8s.io": {"spec": map[string]any{
		"externalHostname": map[string]any{"hostname": "sample.example.com"},
	}},
	// At least one kind of telemetry, and its fields only where it is enabled.
	"XTelemetryPolicy.gateway.networking.x-k8s.io": {"spec": map[string]any{
		"tracing": map[string]any{
			"mode":     "Enabled",
			"provider": map[string]any{"backendRef": map[string]any{"name": "sample", "port": int64(4317)}},
		},
	}},
	// Either an expression or a template.
	"GeneratingPolicy.policies.kyverno.io":           {"spec": map[string]any{"generate": generators()}},
	"NamespacedGeneratingPolicy.policies.kyverno.io": {"spec": map[string]any{"generate": generators()}},
}

func routeRules() []any {
	return []any{map[string]any{
		"backendRefs": []any{map[string]any{"name": "sample", "port": int64(8080)}},
	}}
}

func generators() []any {
	return []any{map[string]any{"expression": "true"}}
}
