// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package storeaccess

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// Permissions of the caller in a test.
const (
	useEndpoints = "use hosting.annex.dev/stores/endpoints /far"
	getSecret    = "get /secrets annex-system/etcd"
)

// permissions allows what it contains, and fails if it contains "fail".
type permissions sets.Set[string]

func (a permissions) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	permission := asked.GetVerb() + " " + asked.GetAPIGroup() + "/" + asked.GetResource()
	if asked.GetSubresource() != "" {
		permission += "/" + asked.GetSubresource()
	}
	permission += " " + asked.GetNamespace() + "/" + asked.GetName()
	if _, yes := a[permission]; yes && asked.IsResourceRequest() {
		return authorizer.DecisionAllow, "", nil
	}
	if _, fails := a["fail"]; fails {
		return authorizer.DecisionNoOpinion, "", errors.New("authorizer unavailable")
	}
	return authorizer.DecisionNoOpinion, "no", nil
}

func store(secret string, endpoints ...string) *hostingv1alpha1.Store {
	made := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: endpoints}}}
	if secret != "" {
		made.Spec.Etcd.TLS = &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Namespace: "annex-system", Name: secret}}
	}
	return made
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const allowed, other, socket = "http://allowed:2379", "http://other:2379", "unix:///run/etcd.sock"
	embedded := &hostingv1alpha1.Store{Spec: hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}}}
	tests := map[string]struct {
		object, old runtime.Object
		may         []string
		caller      string
		subresource string
		wantErr     string
	}{
		"an endpoint of the list":               {object: store("", allowed)},
		"another endpoint":                      {object: store("", allowed, other), wantErr: "the endpoint http://other:2379 is not in annex's flag --store-endpoints"},
		"another endpoint with the permission":  {object: store("", other), may: []string{useEndpoints}},
		"a socket with the permission":          {object: store("", socket), may: []string{useEndpoints}, wantErr: "a socket of the machine"},
		"a socket of annex's own":               {object: store("", socket), caller: user.APIServerUser, may: []string{useEndpoints}},
		"a socket of the list":                  {object: store("", "unix:///run/allowed.sock")},
		"a Secret":                              {object: store("etcd", allowed), wantErr: `the Secret annex-system/etcd, and user "ali" cannot get it`},
		"a Secret that the caller can get":      {object: store("etcd", allowed), may: []string{getSecret}},
		"another Secret":                        {object: store("etcd", allowed), old: store("mine", allowed), wantErr: "annex-system/etcd"},
		"a Secret where there was none":         {object: store("etcd", allowed), old: store("", allowed), wantErr: "annex-system/etcd"},
		"the same Secret for another endpoint":  {object: store("etcd", allowed), old: store("etcd", other), wantErr: "annex-system/etcd"},
		"the same Secret for fewer endpoints":   {object: store("etcd", other), old: store("etcd", other, allowed), wantErr: "annex-system/etcd"},
		"nothing that matters":                  {object: store("etcd", other), old: store("etcd", other)},
		"fewer endpoints":                       {object: store("", other), old: store("", allowed, other)},
		"one more endpoint":                     {object: store("", other, "http://more:1"), old: store("", other), wantErr: "http://more:1"},
		"the etcd of a Store that had none":     {object: store("", other), old: embedded, wantErr: "http://other:2379"},
		"no etcd":                               {object: embedded},
		"the status":                            {object: store("etcd", other), subresource: "status"},
		"an unexpected object":                  {object: &metav1.Status{}, wantErr: "expected a Store"},
		"an authorizer that fails":              {object: store("", other), may: []string{"fail"}, wantErr: "authorizer unavailable"},
		"an authorizer that fails for a Secret": {object: store("etcd", allowed), may: []string{"fail"}, wantErr: "authorizer unavailable"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := New()
			if err := plugin.ValidateInitialization(); err == nil {
				t.Error("the plugin is valid without an authorizer")
			}
			plugin.SetUnconditionalAuthorizer(permissions(sets.New(tc.may...)))
			endpoints, err := ParseEndpoints([]string{"allowed:2379", "unix:///run/allowed.sock"})
			expect.NoError(t, err)
			endpoints.Initialize(plugin)
			operation, caller := admission.Create, "ali"
			if tc.old != nil {
				operation = admission.Update
			}
			if tc.caller != "" {
				caller = tc.caller
			}
			err = plugin.Validate(t.Context(), admission.NewAttributesRecord(tc.object, tc.old, hostingv1alpha1.SchemeGroupVersion.WithKind("Store").GroupKind().WithVersion("v1alpha1"), "", "far",
				hostingv1alpha1.Resource("stores").WithVersion("v1alpha1"), tc.subresource, operation, nil, false, &user.DefaultInfo{Name: caller}), nil)
			expect.ErrorOrNone(t, err, tc.wantErr)
		})
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ matches, others []string }{
		"etcd.example.com:2379": {
			[]string{"https://etcd.example.com:2379", "http://etcd.example.com:2379"},
			[]string{"https://etcd.example.com:2380", "https://x.etcd.example.com:2379", "unix:///etcd.example.com:2379"},
		},
		"*.example.com:2379": {
			[]string{"https://a.example.com:2379", "https://a.b.example.com:2379"},
			[]string{"https://example.com:2379", "https://aexample.com:2379", "https://a.example.com.evil.org:2379"},
		},
		"10.0.0.0/8:*": {
			[]string{"http://10.1.2.3:1", "http://10.1.2.3:65535", "http://[::ffff:10.1.2.3]:1"},
			[]string{"http://11.1.2.3:1", "http://10.example.com:1", "http://[::1]:1", "unix:///10.1.2.3"},
		},
		"127.0.0.1:2379":     {[]string{"http://127.0.0.1:2379"}, []string{"http://127.0.0.2:2379", "http://localhost:2379"}},
		"[fd00::/8]:2379":    {[]string{"http://[fd00::1]:2379"}, []string{"http://[fe80::1]:2379"}},
		"[::1]:2379":         {[]string{"http://[::1]:2379"}, []string{"http://[::2]:2379"}},
		"unix:///run/a.sock": {[]string{"unix:///run/a.sock"}, []string{"unix:///run/b.sock", "unix:///run/a.sock/b", "http://run:1"}},
	}
	for pattern, test := range tests {
		endpoints, err := ParseEndpoints([]string{pattern})
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, endpoint := range test.matches {
			if !endpoints.Contain(endpoint) {
				t.Errorf("%s does not match %s", pattern, endpoint)
			}
		}
		for _, endpoint := range test.others {
			if endpoints.Contain(endpoint) {
				t.Errorf("%s matches %s", pattern, endpoint)
			}
		}
	}
	for _, bad := range []string{"", "etcd", "etcd:", "etcd:0", "etcd:65536", "etcd:http", ":2379", "*:2379", "a.*.b:1", "https://etcd:2379", "10.0.0.0/33:1", "ETCD:1", "unix://a", "unix:///a/../b", "[fe80::1%eth0]:1"} {
		if _, err := ParseEndpoints([]string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if (Endpoints{}).Contain("http://127.0.0.1:2379") {
		t.Error("an empty list matches something")
	}
}
