// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/randfill"
)

// fuzzers fill objects of the kinds that annex serves, and set their defaults as decoding does.
func fuzzers(serializer.CodecFactory) []any {
	fuzzers := map[reflect.Type]any{}
	for _, group := range groups {
		for _, kind := range group.kinds {
			object, err := Scheme.New(schema.GroupVersionKind{Group: group.version.Group, Version: runtime.APIVersionInternal, Kind: kind})
			utilruntime.Must(err)
			signature := reflect.FuncOf([]reflect.Type{reflect.TypeOf(object), reflect.TypeFor[randfill.Continue]()}, nil, false)
			fuzzers[signature] = reflect.MakeFunc(signature, func(arguments []reflect.Value) []reflect.Value {
				object := arguments[0].Interface().(runtime.Object)
				arguments[1].Interface().(randfill.Continue).FillNoCustom(object)
				Scheme.Default(object)
				return nil
			}).Interface()
		}
	}
	return slices.Collect(maps.Values(fuzzers))
}

// Internal objects are filled at random, field by field, and must come back the same from
// JSON and protobuf of their version.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzers), rand.NewSource(rand.Int63()), Codecs)
	roundtrip.RoundTripTypes(t, Scheme, Codecs, filler, nil)
}
