// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// readyCondition is a condition with all required fields.
var readyCondition = metav1.Condition{
	Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reached", LastTransitionTime: metav1.Unix(1, 0),
}

func embeddedStore() *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "default", ResourceVersion: "1"},
		Spec:       hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}},
	}
}

func etcdStore() *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "fast", ResourceVersion: "1"},
		Spec: hostingv1alpha1.StoreSpec{
			Etcd: &hostingv1alpha1.EtcdStore{
				Endpoints: []string{"https://10.0.0.1:2379", "https://[fd00::1]:2379"},
				TLS:       &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Namespace: "annex-system", Name: "etcd"}},
				KeyPrefix: "/annex",
			},
			Capacity: hostingv1alpha1.ResourceList{
				hostingv1alpha1.ResourceStorage: resource.MustParse("8Gi"),
				hostingv1alpha1.ResourceObjects: resource.MustParse("500k"),
			},
			Taints: []hostingv1alpha1.Taint{
				{Key: "annex.dev/heavy", Effect: hostingv1alpha1.TaintEffectNoSchedule},
				{Key: "annex.dev/heavy", Value: "yes", Effect: hostingv1alpha1.TaintEffectPreferNoSchedule},
			},
		},
	}
}

func withEndpoints(endpoints ...string) func(*hostingv1alpha1.Store) {
	return func(s *hostingv1alpha1.Store) { s.Spec.Etcd.Endpoints = endpoints }
}

func withPrefix(prefix string) func(*hostingv1alpha1.Store) {
	return func(s *hostingv1alpha1.Store) { s.Spec.Etcd.KeyPrefix = prefix }
}

func withCapacity(name hostingv1alpha1.ResourceName, amount string) func(*hostingv1alpha1.Store) {
	return func(s *hostingv1alpha1.Store) {
		s.Spec.Capacity = hostingv1alpha1.ResourceList{name: resource.MustParse(amount)}
	}
}

func withTaints(taints ...hostingv1alpha1.Taint) func(*hostingv1alpha1.Store) {
	return func(s *hostingv1alpha1.Store) { s.Spec.Taints = taints }
}

// oldStore is one that could be made before the rules were stricter.
func oldStore() *hostingv1alpha1.Store {
	store := etcdStore()
	withPrefix("/")(store)
	withEndpoints("http://A:1")(store)
	return store
}

func TestValidateStore(t *testing.T) {
	t.Parallel()
	const endpoint = "spec.etcd.endpoints[0]"
	tests := []struct {
		name   string
		change func(*hostingv1alpha1.Store)
		want   []string
	}{
		{name: "valid", change: func(*hostingv1alpha1.Store) {}},
		{name: "subdomain as name", change: func(s *hostingv1alpha1.Store) { s.Name = "fast.rack-1" }},
		{name: "bad name", change: func(s *hostingv1alpha1.Store) { s.Name = "Fast" }, want: []string{"metadata.name: Invalid value"}},
		{name: "namespace", change: func(s *hostingv1alpha1.Store) { s.Namespace = "a" }, want: []string{"metadata.namespace: Forbidden"}},
		{name: "neither place", change: func(s *hostingv1alpha1.Store) { s.Spec.Etcd = nil }, want: []string{"spec: Required value"}},
		{
			name:   "both places",
			change: func(s *hostingv1alpha1.Store) { s.Spec.Embedded = &hostingv1alpha1.EmbeddedStore{} },
			want:   []string{"spec.etcd: Forbidden"},
		},

		{name: "unix socket", change: withEndpoints("unix:///run/etcd.sock")},
		{name: "plain http", change: withEndpoints("http://localhost:2379")},
		{name: "no endpoint", change: withEndpoints(), want: []string{"spec.etcd.endpoints: Required value"}},
		{name: "same endpoint twice", change: withEndpoints("http://a:1", "http://a:1"), want: []string{"spec.etcd.endpoints[1]: Duplicate value"}},
		{name: "second endpoint bad", change: withEndpoints("http://a:1", "b:1"), want: []string{"spec.etcd.endpoints[1][scheme]: Unsupported value"}},
		{name: "empty endpoint", change: withEndpoints(""), want: []string{endpoint + "[scheme]: Unsupported value"}},
		{name: "not a URL", change: withEndpoints("http://a b"), want: []string{endpoint + ": Invalid value"}},
		{name: "no scheme", change: withEndpoints("10.0.0.1:2379"), want: []string{endpoint + ": Invalid value"}},
		{name: "unknown scheme", change: withEndpoints("ftp://a:1"), want: []string{endpoint + "[scheme]: Unsupported value"}},
		{name: "no host", change: withEndpoints("https://:2379"), want: []string{endpoint + ": Invalid value"}},
		{name: "no port", change: withEndpoints("https://a"), want: []string{endpoint + ": Invalid value"}},
		{name: "path", change: withEndpoints("https://a:1/b"), want: []string{endpoint + ": Invalid value"}},
		{name: "query", change: withEndpoints("https://a:1?b=c"), want: []string{endpoint + ": Invalid value"}},
		{name: "fragment", change: withEndpoints("https://a:1#b"), want: []string{endpoint + ": Invalid value"}},
		{name: "password", change: withEndpoints("https://u:p@a:1"), want: []string{endpoint + ": Forbidden"}},
		{name: "relative socket", change: withEndpoints("unix://etcd.sock"), want: []string{endpoint + ": Invalid value"}},
		{name: "socket without a path", change: withEndpoints("unix://"), want: []string{endpoint + ": Invalid value"}},
		{name: "IPv6", change: withEndpoints("https://[fd00::1]:2379")},
		{name: "socket by another way", change: withEndpoints("unix:///run/../run/etcd.sock"), want: []string{endpoint + ": Invalid value"}},
		{name: "socket with an escape", change: withEndpoints("unix:///run/%65tcd.sock"), want: []string{endpoint + ": Invalid value"}},
		{name: "socket with a host", change: withEndpoints("unix://host/run/etcd.sock"), want: []string{endpoint + ": Invalid value"}},
		{name: "socket with a query", change: withEndpoints("unix:///run/etcd.sock?a"), want: []string{endpoint + ": Invalid value"}},
		{name: "scheme in upper case", change: withEndpoints("UNIX:///run/etcd.sock"), want: []string{endpoint + ": Invalid value"}},
		{name: "a socket to gRPC", change: withEndpoints("http://unix:1"), want: []string{endpoint + ": Invalid value"}},
		{name: "host in upper case", change: withEndpoints("http://LOCALHOST:1"), want: []string{endpoint + ": Invalid value"}},
		{name: "host with an escape", change: withEndpoints("http://%6cocalhost:1"), want: []string{endpoint + ": Invalid value"}},
		{name: "slash", change: withEndpoints("http://a:1/"), want: []string{endpoint + ": Invalid value"}},
		{name: "long IPv6", change: withEndpoints("http://[0:0::1]:1"), want: []string{endpoint + ": Invalid value"}},

		{name: "no TLS", change: func(s *hostingv1alpha1.Store) { s.Spec.Etcd.TLS = nil }},
		{
			name:   "empty secret reference",
			change: func(s *hostingv1alpha1.Store) { s.Spec.Etcd.TLS.SecretRef = hostingv1alpha1.SecretReference{} },
			want:   []string{"spec.etcd.tls.secretRef.namespace: Required value", "spec.etcd.tls.secretRef.name: Required value"},
		},
		{
			name: "bad secret reference",
			change: func(s *hostingv1alpha1.Store) {
				s.Spec.Etcd.TLS.SecretRef = hostingv1alpha1.SecretReference{Namespace: "a.b", Name: "a/b"}
			},
			want: []string{"spec.etcd.tls.secretRef.namespace: Invalid value", "spec.etcd.tls.secretRef.name: Invalid value"},
		},

		{name: "deep prefix", change: withPrefix("/team/a")},
		{name: "whole key space", change: withPrefix("/"), want: []string{"spec.etcd.keyPrefix: Invalid value"}},
		{name: "no prefix", change: withPrefix(""), want: []string{"spec.etcd.keyPrefix: Required value"}},
		{name: "relative prefix", change: withPrefix("annex"), want: []string{"spec.etcd.keyPrefix: Invalid value"}},
		{name: "trailing slash", change: withPrefix("/annex/"), want: []string{"spec.etcd.keyPrefix: Invalid value"}},
		{name: "climbing prefix", change: withPrefix("/annex/../b"), want: []string{"spec.etcd.keyPrefix: Invalid value"}},

		{name: "no capacity left to give", change: withCapacity("storage", "0")},
		{name: "more than 64 bits hold", change: withCapacity("storage", "100Ei")},
		{name: "negative storage", change: withCapacity("storage", "-1Gi"), want: []string{"spec.capacity[storage]: Invalid value"}},
		{name: "half an object", change: withCapacity("objects", "500m"), want: []string{"spec.capacity[objects]: Invalid value"}},
		{name: "unknown resource", change: withCapacity("cpu", "1"), want: []string{"spec.capacity[cpu]: Unsupported value"}},

		{
			name:   "empty taint",
			change: withTaints(hostingv1alpha1.Taint{}),
			want:   []string{"spec.taints[0].key: Required value", "spec.taints[0].effect: Required value"},
		},
		{
			name:   "bad taint",
			change: withTaints(hostingv1alpha1.Taint{Key: "a b", Value: "c d", Effect: "NoExecute"}),
			want:   []string{"spec.taints[0].key: Invalid value", "spec.taints[0].value: Invalid value", "spec.taints[0].effect: Unsupported value"},
		},
		{
			name: "same taint twice",
			change: withTaints(
				hostingv1alpha1.Taint{Key: "a", Value: "1", Effect: hostingv1alpha1.TaintEffectNoSchedule},
				hostingv1alpha1.Taint{Key: "a", Value: "2", Effect: hostingv1alpha1.TaintEffectNoSchedule},
			),
			want: []string{"spec.taints[1]: Duplicate value"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := etcdStore()
			test.change(store)
			expect.FieldErrors(t, ValidateStore(store), test.want...)
		})
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		expect.FieldErrors(t, ValidateStore(embeddedStore()))
	})
}

func TestEndpointErrorsDoNotShowPasswords(t *testing.T) {
	t.Parallel()
	store := etcdStore()
	withEndpoints("https://root:hunter2@a:1")(store)
	if text := ValidateStore(store).ToAggregate().Error(); strings.Contains(text, "hunter2") {
		t.Errorf("the answer shows the password: %s", text)
	}
}

func TestValidateStoreUpdate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		from, to func() *hostingv1alpha1.Store
		change   func(*hostingv1alpha1.Store)
		want     []string
	}{
		{name: "nothing", from: etcdStore, to: etcdStore, change: func(*hostingv1alpha1.Store) {}},
		{
			name: "another member and other certificates", from: etcdStore, to: etcdStore,
			change: func(s *hostingv1alpha1.Store) {
				s.Spec.Etcd.Endpoints = append(s.Spec.Etcd.Endpoints, "https://10.0.0.3:2379")
				s.Spec.Etcd.TLS = nil
			},
		},
		{
			name: "capacity, taints and scheduling", from: embeddedStore, to: embeddedStore,
			change: func(s *hostingv1alpha1.Store) {
				s.Spec.Unschedulable = true
				withCapacity("storage", "1Gi")(s)
				withTaints(hostingv1alpha1.Taint{Key: "a", Effect: hostingv1alpha1.TaintEffectNoSchedule})(s)
			},
		},
		{
			name: "invalid spec", from: etcdStore, to: etcdStore, change: withEndpoints(),
			want: []string{"spec.etcd.endpoints: Required value"},
		},
		{
			name: "labels of an etcd that is no longer accepted", from: oldStore, to: oldStore,
			change: func(s *hostingv1alpha1.Store) { s.Labels = map[string]string{"a": "b"} },
		},
		{
			name: "another endpoint of it", from: oldStore, to: oldStore, change: withEndpoints("http://B:1"),
			want: []string{"spec.etcd.endpoints[0]: Invalid value"},
		},
		{
			name: "another prefix", from: etcdStore, to: etcdStore, change: withPrefix("/other"),
			want: []string{"spec.etcd.keyPrefix: Invalid value"},
		},
		{
			name: "from embedded to etcd", from: embeddedStore, to: etcdStore,
			change: func(s *hostingv1alpha1.Store) { s.Name = "default" },
			want:   []string{"spec: Forbidden"},
		},
		{
			name: "from etcd to embedded", from: etcdStore, to: embeddedStore,
			change: func(s *hostingv1alpha1.Store) { s.Name = "fast" },
			want:   []string{"spec: Forbidden"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := test.to()
			test.change(updated)
			expect.FieldErrors(t, ValidateStoreUpdate(updated, test.from()), test.want...)
		})
	}
}

func TestClusterIsPinned(t *testing.T) {
	t.Parallel()
	const first, second = "cdf818194e3a8c32", "8e9e05c52164694d"
	for name, test := range map[string]struct {
		from, to    string
		adopt, name string
		want        []string
	}{
		"kept":                            {from: first, to: first},
		"changed":                         {from: first, to: second, want: []string{"status.clusterID: Invalid value"}},
		"taken back":                      {from: first, want: []string{"status.clusterID: Invalid value"}},
		"adopted":                         {from: first, to: second, adopt: second},
		"another adopted than written":    {from: first, to: second, adopt: "7", want: []string{"status.clusterID: Invalid value"}},
		"none adopted":                    {from: first, want: []string{"status.clusterID: Invalid value"}},
		"of the Store that always exists": {name: hostingv1alpha1.DefaultStoreName, from: first, to: second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, updated := etcdStore(), etcdStore()
			old.Status.ClusterID, updated.Status.ClusterID = test.from, test.to
			for _, store := range []*hostingv1alpha1.Store{old, updated} {
				if store.Annotations = map[string]string{hostingv1alpha1.AdoptClusterAnnotation: test.adopt}; test.name != "" {
					store.Name = test.name
				}
			}
			expect.FieldErrors(t, ValidateStoreStatusUpdate(updated, old), test.want...)
		})
	}
}

func TestValidateStoreStatusUpdate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status hostingv1alpha1.StoreStatus
		want   []string
	}{
		{name: "empty"},
		{
			name: "full",
			status: hostingv1alpha1.StoreStatus{
				Conditions:   []metav1.Condition{readyCondition},
				DatabaseSize: new(resource.MustParse("20Mi")),
				SizeInUse:    new(resource.MustParse("0")),
				Quota:        new(resource.MustParse("8Gi")),
				Objects:      12,
				Members:      []hostingv1alpha1.StoreMember{{ID: "8e9e05c52164694d"}, {ID: "91bc3c398fb3c146"}},
				Version:      "3.7.3",
			},
		},
		{
			name: "negative",
			status: hostingv1alpha1.StoreStatus{
				DatabaseSize: new(resource.MustParse("-1")),
				SizeInUse:    new(resource.MustParse("-1")),
				Quota:        new(resource.MustParse("-1")),
				Objects:      -1,
				Resources:    -1,
			},
			want: []string{"status.size: Invalid value", "status.sizeInUse: Invalid value", "status.quota: Invalid value", "status.objects: Invalid value", "status.resources: Invalid value"},
		},
		{name: "cluster", status: hostingv1alpha1.StoreStatus{ClusterID: "cdf818194e3a8c32"}},
		{name: "bad cluster", status: hostingv1alpha1.StoreStatus{ClusterID: "etcd"}, want: []string{"status.clusterID: Invalid value"}},
		{
			name:   "members without and with the same id",
			status: hostingv1alpha1.StoreStatus{Members: []hostingv1alpha1.StoreMember{{Name: "a"}, {ID: "1"}, {ID: "1"}}},
			want:   []string{"status.members[0].id: Required value", "status.members[2].id: Duplicate value"},
		},
		{
			name:   "bad condition",
			status: hostingv1alpha1.StoreStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "Maybe", Reason: "X", LastTransitionTime: metav1.Unix(1, 0)}}},
			want:   []string{"status.conditions[0].status: Unsupported value"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := embeddedStore()
			updated.Status = test.status
			expect.FieldErrors(t, ValidateStoreStatusUpdate(updated, embeddedStore()), test.want...)
		})
	}
}
