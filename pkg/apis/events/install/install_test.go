// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	coreinstall "github.com/annex-dev/annex/pkg/apis/core/install"
	"github.com/annex-dev/annex/pkg/apis/events/install"
)

// The hub type is filled at random, field by field, and must come back the same
// from JSON and protobuf of events.k8s.io/v1: no field is lost in conversion.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	none := func(serializer.CodecFactory) []any { return nil }
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, none)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, none)
}

// Objects are stored as v1 of the core group and read through either.
func TestStoredThroughCore(t *testing.T) {
	t.Parallel()
	for name, installers := range map[string][]func(*runtime.Scheme){
		"core first":   {coreinstall.Install, install.Install},
		"events first": {install.Install, coreinstall.Install},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			for _, installer := range installers {
				installer(scheme)
			}
			codecs := serializer.NewCodecFactory(scheme)
			hub := schema.GroupVersion{Group: eventsv1.GroupName, Version: runtime.APIVersionInternal}
			body := []byte(`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"note":"n","regarding":{"name":"r"},"deprecatedCount":3,"series":{"count":2}}`)
			decoded, err := runtime.Decode(codecs.UniversalDecoder(hub), body)
			if err != nil {
				t.Fatalf("decode events.k8s.io/v1: %v", err)
			}
			stored, err := runtime.Encode(codecs.LegacyCodec(corev1.SchemeGroupVersion), decoded)
			if err != nil {
				t.Fatalf("encode as v1: %v", err)
			}
			read, gvk, err := codecs.UniversalDeserializer().Decode(stored, nil, nil)
			if err != nil {
				t.Fatalf("decode what is stored: %v", err)
			}
			if want := corev1.SchemeGroupVersion.WithKind("Event"); *gvk != want {
				t.Errorf("stored as %s, want %s", gvk, want)
			}
			want := &corev1.Event{Message: "n", InvolvedObject: corev1.ObjectReference{Name: "r"}, Count: 3, Series: &corev1.EventSeries{Count: 2}}
			want.SetGroupVersionKind(*gvk)
			want.Name = "a"
			if diff := cmp.Diff(want, read); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			kinds, _, err := scheme.ObjectKinds(&corev1.Event{})
			if err != nil || kinds[0] != *gvk {
				t.Errorf("first kind of the type is %v (error %v), want %s: errors are worded with it", kinds, err, gvk)
			}
		})
	}
}

func TestFieldLabels(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	tests := map[string]string{
		"regarding.name": "involvedObject.name", "reportingController": "reportingComponent", "reason": "reason",
		"metadata.namespace": "metadata.namespace", "involvedObject.name": "", "note": "",
	}
	for label, want := range tests {
		got, _, err := scheme.ConvertFieldLabel(eventsv1.SchemeGroupVersion.WithKind("Event"), label, "v")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, error %v; want %q", label, got, err, want)
		}
	}
}
