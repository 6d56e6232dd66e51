// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting/fuzzer"
	"github.com/annex-dev/annex/pkg/apis/hosting/install"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzer.Funcs)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		in, want runtime.Object
	}{
		{
			name: "embedded store",
			in:   &v1alpha1.Store{Spec: v1alpha1.StoreSpec{Embedded: &v1alpha1.EmbeddedStore{}}},
			want: &v1alpha1.Store{Spec: v1alpha1.StoreSpec{Embedded: &v1alpha1.EmbeddedStore{}}},
		},
		{
			name: "etcd store",
			in:   &v1alpha1.Store{Spec: v1alpha1.StoreSpec{Etcd: &v1alpha1.EtcdStore{TLS: &v1alpha1.EtcdTLS{}}}},
			want: &v1alpha1.Store{Spec: v1alpha1.StoreSpec{Etcd: &v1alpha1.EtcdStore{
				KeyPrefix: "/annex",
				TLS:       &v1alpha1.EtcdTLS{SecretRef: v1alpha1.SecretReference{Namespace: "annex-system"}},
			}}},
		},
		{
			name: "hosted resource",
			in:   &v1alpha1.HostedResource{Spec: v1alpha1.HostedResourceSpec{Tolerations: []v1alpha1.Toleration{{Key: "a"}}}},
			want: &v1alpha1.HostedResource{Spec: v1alpha1.HostedResourceSpec{
				Tolerations:   []v1alpha1.Toleration{{Key: "a", Operator: v1alpha1.TolerationOpEqual}},
				SchedulerName: "annex-scheduler",
			}},
		},
		{
			name: "what is set stays",
			in: &v1alpha1.HostedResource{Spec: v1alpha1.HostedResourceSpec{
				Tolerations:   []v1alpha1.Toleration{{Key: "a", Operator: v1alpha1.TolerationOpExists}},
				SchedulerName: "mine",
			}},
			want: &v1alpha1.HostedResource{Spec: v1alpha1.HostedResourceSpec{
				Tolerations:   []v1alpha1.Toleration{{Key: "a", Operator: v1alpha1.TolerationOpExists}},
				SchedulerName: "mine",
			}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			newScheme().Default(test.in)
			if diff := cmp.Diff(test.want, test.in); diff != "" {
				t.Errorf("defaulted object (-want +got):\n%s", diff)
			}
		})
	}
}

// Clients wait for counters, so a zero must be there to be read.
func TestCountersAreWrittenWhenZero(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status any
		want   string
	}{
		{name: "store", status: v1alpha1.StoreStatus{}, want: `{"objects":0,"resources":0}`},
		{name: "hosted resource", status: v1alpha1.HostedResourceStatus{}, want: `{"objects":0,"bytes":0,"storedBytes":0}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(test.status)
			if err != nil {
				t.Fatalf("Marshal: %v", err)
			}
			if string(got) != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestFieldLabels(t *testing.T) {
	t.Parallel()
	scheme := newScheme()
	tests := map[string]map[string]bool{
		"Store":          {"metadata.name": true, "spec.storeName": false, "metadata.uid": false},
		"HostedResource": {"metadata.name": true, "spec.storeName": true, "status.phase": false},
	}
	for kind, labels := range tests {
		for label, known := range labels {
			got, value, err := scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind(kind), label, "v")
			if known && (got != label || value != "v" || err != nil) {
				t.Errorf("%s %s: %q=%q, error %v", kind, label, got, value, err)
			}
			if !known && err == nil {
				t.Errorf("%s %s: no error for a field that cannot be selected", kind, label)
			}
		}
	}
}
