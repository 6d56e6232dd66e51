// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fuzzer fills objects of the hosting group at random, for round-trip tests.
package fuzzer

import (
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Funcs returns the fuzzers of fields with a default: internal objects are always
// defaulted, so these are never empty.
func Funcs(serializer.CodecFactory) []any {
	return []any{
		func(etcd *hosting.EtcdStore, c randfill.Continue) {
			c.FillNoCustom(etcd)
			orDefault(&etcd.KeyPrefix, v1alpha1.DefaultKeyPrefix)
		},
		func(reference *hosting.SecretReference, c randfill.Continue) {
			c.FillNoCustom(reference)
			orDefault(&reference.Namespace, v1alpha1.DefaultSecretNamespace)
		},
		func(spec *hosting.HostedResourceSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			orDefault(&spec.SchedulerName, v1alpha1.DefaultSchedulerName)
		},
		func(toleration *hosting.Toleration, c randfill.Continue) {
			c.FillNoCustom(toleration)
			orDefault(&toleration.Operator, hosting.TolerationOpEqual)
		},
	}
}

func orDefault[S ~string](field *S, value S) {
	if *field == "" {
		*field = value
	}
}
