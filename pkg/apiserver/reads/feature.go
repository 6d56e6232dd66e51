// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// EncodedReads keeps custom resources in watch caches as JSON, from which reads are served.
const EncodedReads featuregate.Feature = "EncodedReads"

func init() {
	runtime.Must(utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		EncodedReads: {Default: true, PreRelease: featuregate.Beta},
	}))
}

// Enabled reports whether this package serves custom resources. Responses in CBOR, an alpha of
// upstream, need decoded objects.
func Enabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(EncodedReads) && !utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage)
}
