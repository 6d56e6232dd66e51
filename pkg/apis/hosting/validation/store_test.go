// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

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
		{name: "bad name", change: func(s *hostingv1alpha1.Store) { s.Name = "Fast" }, want: []string{at("metadata.name", invalid)}},
		{name: "namespace", change: func(s *hostingv1alpha1.Store) { s.Namespace = "a" }, want: []string{at("metadata.namespace", forbidden)}},
		{name: "neither place", change: func(s *hostingv1alpha1.Store) { s.Spec.Etcd = nil }, want: []string{at("spec", required)}},
		{
			name:   "both places",
			change: func(s *hostingv1alpha1.Store) { s.Spec.Embedded = &hostingv1alpha1.EmbeddedStore{} },
			want:   []string{at("spec.etcd", forbidden)},
		},

		{name: "unix socket", change: withEndpoints("unix:///run/etcd.sock")},
		{name: "plain http", change: withEndpoints("http://localhost:2379")},
		{name: "no endpoint", change: withEndpoints(), want: []string{at("spec.etcd.endpoints", required)}},
		{name: "same endpoint twice", change: withEndpoints("http://a:1", "http://a:1"), want: []string{at("spec.etcd.endpoints[1]", duplicate)}},
		{name: "second endpoint bad", change: withEndpoints("http://a:1", "b:1"), want: []string{at("spec.etcd.endpoints[1][scheme]", notSupported)}},
		{name: "empty endpoint", change: withEndpoints(""), want: []string{at(endpoint+"[scheme]", notSupported)}},
		{name: "not a URL", change: withEndpoints("http://a b"), want: []string{at(endpoint, invalid)}},
		{name: "no scheme", change: withEndpoints("10.0.0.1:2379"), want: []string{at(endpoint, invalid)}},
		{name: "unknown scheme", change: withEndpoints("ftp://a:1"), want: []string{at(endpoint+"[scheme]", notSupported)}},
		{name: "no host", change: withEndpoints("https://:2379"), want: []string{at(endpoint, invalid)}},
		{name: "no port", change: withEndpoints("https://a"), want: []string{at(endpoint, invalid)}},
		{name: "path", change: withEndpoints("https://a:1/b"), want: []string{at(endpoint, invalid)}},
		{name: "query", change: withEndpoints("https://a:1?b=c"), want: []string{at(endpoint, invalid)}},
		{name: "fragment", change: withEndpoints("https://a:1#b"), want: []string{at(endpoint, invalid)}},
		{name: "password", change: withEndpoints("https://u:p@a:1"), want: []string{at(endpoint, forbidden)}},
		{name: "relative socket", change: withEndpoints("unix://etcd.sock"), want: []string{at(endpoint, invalid)}},
		{name: "socket without a path", change: withEndpoints("unix://"), want: []string{at(endpoint, invalid)}},
		{name: "IPv6", change: withEndpoints("https://[fd00::1]:2379")},
		{name: "socket by another way", change: withEndpoints("unix:///run/../run/etcd.sock"), want: []string{at(endpoint, invalid)}},
		{name: "socket with an escape", change: withEndpoints("unix:///run/%65tcd.sock"), want: []string{at(endpoint, invalid)}},
		{name: "socket with a host", change: withEndpoints("unix://host/run/etcd.sock"), want: []string{at(endpoint, invalid)}},
		{name: "socket with a query", change: withEndpoints("unix:///run/etcd.sock?a"), want: []string{at(endpoint, invalid)}},
		{name: "scheme in upper case", change: withEndpoints("UNIX:///run/etcd.sock"), want: []string{at(endpoint, invalid)}},
		{name: "a socket to gRPC", change: withEndpoints("http://unix:1"), want: []string{at(endpoint, invalid)}},
		{name: "host in upper case", change: withEndpoints("http://LOCALHOST:1"), want: []string{at(endpoint, invalid)}},
		{name: "host with an escape", change: withEndpoints("http://%6cocalhost:1"), want: []string{at(endpoint, invalid)}},
		{name: "slash", change: withEndpoints("http://a:1/"), want: []string{at(endpoint, invalid)}},
		{name: "long IPv6", change: withEndpoints("http://[0:0::1]:1"), want: []string{at(endpoint, invalid)}},

		{name: "no TLS", change: func(s *hostingv1alpha1.Store) { s.Spec.Etcd.TLS = nil }},
		{
			name:   "empty secret reference",
			change: func(s *hostingv1alpha1.Store) { s.Spec.Etcd.TLS.SecretRef = hostingv1alpha1.SecretReference{} },
			want:   []string{at("spec.etcd.tls.secretRef.name", required), at("spec.etcd.tls.secretRef.namespace", required)},
		},
		{
			name: "bad secret reference",
			change: func(s *hostingv1alpha1.Store) {
				s.Spec.Etcd.TLS.SecretRef = hostingv1alpha1.SecretReference{Namespace: "a.b", Name: "a/b"}
			},
			want: []string{at("spec.etcd.tls.secretRef.name", invalid), at("spec.etcd.tls.secretRef.namespace", invalid)},
		},

		{name: "deep prefix", change: withPrefix("/team/a")},
		{name: "whole key space", change: withPrefix("/"), want: []string{at("spec.etcd.keyPrefix", invalid)}},
		{name: "no prefix", change: withPrefix(""), want: []string{at("spec.etcd.keyPrefix", required)}},
		{name: "relative prefix", change: withPrefix("annex"), want: []string{at("spec.etcd.keyPrefix", invalid)}},
		{name: "trailing slash", change: withPrefix("/annex/"), want: []string{at("spec.etcd.keyPrefix", invalid)}},
		{name: "climbing prefix", change: withPrefix("/annex/../b"), want: []string{at("spec.etcd.keyPrefix", invalid)}},

		{name: "no capacity left to give", change: withCapacity("storage", "0")},
		{name: "more than 64 bits hold", change: withCapacity("storage", "100Ei")},
		{name: "negative storage", change: withCapacity("storage", "-1Gi"), want: []string{at("spec.capacity[storage]", invalid)}},
		{name: "half an object", change: withCapacity("objects", "500m"), want: []string{at("spec.capacity[objects]", invalid)}},
		{name: "unknown resource", change: withCapacity("cpu", "1"), want: []string{at("spec.capacity[cpu]", notSupported)}},

		{
			name:   "empty taint",
			change: withTaints(hostingv1alpha1.Taint{}),
			want:   []string{at("spec.taints[0].effect", required), at("spec.taints[0].key", required)},
		},
		{
			name:   "bad taint",
			change: withTaints(hostingv1alpha1.Taint{Key: "a b", Value: "c d", Effect: "NoExecute"}),
			want:   []string{at("spec.taints[0].effect", notSupported), at("spec.taints[0].key", invalid), at("spec.taints[0].value", invalid)},
		},
		{
			name: "same taint twice",
			change: withTaints(
				hostingv1alpha1.Taint{Key: "a", Value: "1", Effect: hostingv1alpha1.TaintEffectNoSchedule},
				hostingv1alpha1.Taint{Key: "a", Value: "2", Effect: hostingv1alpha1.TaintEffectNoSchedule},
			),
			want: []string{at("spec.taints[1]", duplicate)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := etcdStore()
			test.change(store)
			expectErrors(t, test.want, ValidateStore(store))
		})
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		expectErrors(t, nil, ValidateStore(embeddedStore()))
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
			want: []string{at("spec.etcd.endpoints", required)},
		},
		{
			name: "labels of an etcd that is no longer accepted", from: oldStore, to: oldStore,
			change: func(s *hostingv1alpha1.Store) { s.Labels = map[string]string{"a": "b"} },
		},
		{
			name: "another endpoint of it", from: oldStore, to: oldStore, change: withEndpoints("http://B:1"),
			want: []string{at("spec.etcd.endpoints[0]", invalid)},
		},
		{
			name: "another prefix", from: etcdStore, to: etcdStore, change: withPrefix("/other"),
			want: []string{at("spec.etcd.keyPrefix", invalid)},
		},
		{
			name: "from embedded to etcd", from: embeddedStore, to: etcdStore,
			change: func(s *hostingv1alpha1.Store) { s.Name = "default" },
			want:   []string{at("spec", forbidden)},
		},
		{
			name: "from etcd to embedded", from: etcdStore, to: embeddedStore,
			change: func(s *hostingv1alpha1.Store) { s.Name = "fast" },
			want:   []string{at("spec", forbidden)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := test.to()
			test.change(updated)
			expectErrors(t, test.want, ValidateStoreUpdate(updated, test.from()))
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
		"changed":                         {from: first, to: second, want: []string{at("status.clusterID", invalid)}},
		"taken back":                      {from: first, want: []string{at("status.clusterID", invalid)}},
		"adopted":                         {from: first, to: second, adopt: second},
		"another adopted than written":    {from: first, to: second, adopt: "7", want: []string{at("status.clusterID", invalid)}},
		"none adopted":                    {from: first, want: []string{at("status.clusterID", invalid)}},
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
			expectErrors(t, test.want, ValidateStoreStatusUpdate(updated, old))
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
				DatabaseSize: ptr.To(resource.MustParse("20Mi")),
				SizeInUse:    ptr.To(resource.MustParse("0")),
				Quota:        ptr.To(resource.MustParse("8Gi")),
				Objects:      12,
				Members:      []hostingv1alpha1.StoreMember{{ID: "8e9e05c52164694d"}, {ID: "91bc3c398fb3c146"}},
				Version:      "3.7.3",
			},
		},
		{
			name: "negative",
			status: hostingv1alpha1.StoreStatus{
				DatabaseSize: ptr.To(resource.MustParse("-1")),
				SizeInUse:    ptr.To(resource.MustParse("-1")),
				Quota:        ptr.To(resource.MustParse("-1")),
				Objects:      -1,
				Resources:    -1,
			},
			want: []string{at("status.objects", invalid), at("status.resources", invalid), at("status.quota", invalid), at("status.size", invalid), at("status.sizeInUse", invalid)},
		},
		{name: "cluster", status: hostingv1alpha1.StoreStatus{ClusterID: "cdf818194e3a8c32"}},
		{name: "bad cluster", status: hostingv1alpha1.StoreStatus{ClusterID: "etcd"}, want: []string{at("status.clusterID", invalid)}},
		{
			name:   "members without and with the same id",
			status: hostingv1alpha1.StoreStatus{Members: []hostingv1alpha1.StoreMember{{Name: "a"}, {ID: "1"}, {ID: "1"}}},
			want:   []string{at("status.members[0].id", required), at("status.members[2].id", duplicate)},
		},
		{
			name:   "bad condition",
			status: hostingv1alpha1.StoreStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "Maybe", Reason: "X", LastTransitionTime: metav1.Unix(1, 0)}}},
			want:   []string{at("status.conditions[0].status", notSupported)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := embeddedStore()
			updated.Status = test.status
			expectErrors(t, test.want, ValidateStoreStatusUpdate(updated, embeddedStore()))
		})
	}
}
