// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// EncodedReads keeps custom resources encoded in the watch cache and serves reads from there.
const EncodedReads featuregate.Feature = "EncodedReads"

func init() {
	runtime.Must(utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		EncodedReads: {Default: true, PreRelease: featuregate.Beta},
	}))
}

// Enabled reports whether custom resources are read encoded. Responses in CBOR, an alpha of
// upstream, need decoded objects.
func Enabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(EncodedReads) && !utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage)
}
