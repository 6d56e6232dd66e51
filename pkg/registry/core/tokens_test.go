// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// getter has the given objects, by name.
type getter map[string]runtime.Object

func (g getter) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	info, _ := genericapirequest.RequestInfoFrom(ctx)
	object, ok := g[genericapirequest.NamespaceValue(ctx)+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource(info.Resource), name)
	}
	return object, nil
}

func newTestTokenREST(t *testing.T, maxLifetime time.Duration) *tokenREST {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	issuer, err := serviceaccount.NewIssuer("https://annex.example", key)
	expect.NoError(t, err)
	ending := metav1.NewTime(epoch)
	meta := func(name string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "team", Name: name, UID: "uid-of-this"}
		if name == "ending" {
			m.DeletionTimestamp = &ending
		}
		return m
	}
	r := newTokenREST(
		serviceaccount.TokenConfig{Issuer: issuer, Audiences: []string{"annex"}, MaxLifetime: maxLifetime},
		getter{
			"team/robot":  &corev1.ServiceAccount{ObjectMeta: meta("robot")},
			"team/ending": &corev1.ServiceAccount{ObjectMeta: meta("ending")},
		},
		getter{
			"team/vault":  &corev1.Secret{ObjectMeta: meta("vault")},
			"team/ending": &corev1.Secret{ObjectMeta: meta("ending")},
		},
	)
	r.now = func() time.Time { return epoch }
	return r
}

// recordedWarnings are the warnings to a caller.
type recordedWarnings []string

func (w *recordedWarnings) AddWarning(_, text string) { *w = append(*w, text) }

func tokenContext(t *testing.T, told *recordedWarnings) context.Context {
	t.Helper()
	ctx := genericapirequest.WithNamespace(t.Context(), "team")
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{IsResourceRequest: true, Resource: "serviceaccounts", Subresource: "token", Namespace: "team"})
	return warning.WithWarningRecorder(ctx, told)
}

// tokenRequest is a valid one with changes.
func tokenRequest(change func(*authenticationv1.TokenRequest)) *authenticationv1.TokenRequest {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(7200))}}
	if change != nil {
		change(request)
	}
	return request
}

func bind(apiVersion, kind, name string, uid types.UID) func(*authenticationv1.TokenRequest) {
	return func(request *authenticationv1.TokenRequest) {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
	}
}

// claimsOf reads a token without the key.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	expect.NoError(t, err)
	claims := map[string]any{}
	expect.NoError(t, json.Unmarshal(raw, &claims))
	return claims
}

func TestTokenCreate(t *testing.T) {
	t.Parallel()
	account := map[string]any{"name": "robot", "uid": "uid-of-this"}
	tests := []struct {
		name     string
		max      time.Duration
		change   func(*authenticationv1.TokenRequest)
		lifetime int64
		audience []any
		bound    any
		told     recordedWarnings
	}{
		{name: "plain", lifetime: 7200, audience: []any{"annex"}},
		{
			name: "for audiences", lifetime: 7200, audience: []any{"vault", "annex"},
			change: func(request *authenticationv1.TokenRequest) { request.Spec.Audiences = []string{"vault", "annex"} },
		},
		{name: "bound", change: bind("v1", "Secret", "vault", "uid-of-this"), lifetime: 7200, audience: []any{"annex"}, bound: map[string]any{"name": "vault", "uid": "uid-of-this"}},
		{name: "bound by name", change: bind("v1", "Secret", "vault", ""), lifetime: 7200, audience: []any{"annex"}, bound: map[string]any{"name": "vault", "uid": "uid-of-this"}},
		{
			name: "shortened", max: time.Hour, lifetime: 3600, audience: []any{"annex"},
			told: recordedWarnings{"requested expiration of 7200 seconds shortened to 3600 seconds"},
		},
		{name: "not shortened", max: 2 * time.Hour, lifetime: 7200, audience: []any{"annex"}},
		{
			name: "named, with a status", lifetime: 7200, audience: []any{"annex"},
			change: func(request *authenticationv1.TokenRequest) {
				request.Name, request.Namespace, request.UID = "robot", "team", "uid-of-this"
				request.Status.Token = "mine"
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var told recordedWarnings
			object, err := newTestTokenREST(t, test.max).Create(tokenContext(t, &told), "robot", tokenRequest(test.change), rest.ValidateAllObjectFunc, nil)
			expect.NoError(t, err)
			answer := object.(*authenticationv1.TokenRequest)
			expires := epoch.Add(time.Duration(test.lifetime) * time.Second)
			if !answer.Status.ExpirationTimestamp.Time.Equal(expires) || *answer.Spec.ExpirationSeconds != test.lifetime {
				t.Errorf("expires %s, after %d seconds; want %s", answer.Status.ExpirationTimestamp, *answer.Spec.ExpirationSeconds, expires)
			}
			if answer.Name != "robot" || answer.Namespace != "team" || answer.UID != "uid-of-this" {
				t.Errorf("answer about %s/%s %s", answer.Namespace, answer.Name, answer.UID)
			}
			kubernetes := map[string]any{"namespace": "team", "serviceaccount": account}
			if test.bound != nil {
				kubernetes["secret"] = test.bound
			}
			got := claimsOf(t, answer.Status.Token)
			delete(got, "jti")
			want := map[string]any{
				"iss": "https://annex.example", "sub": "system:serviceaccount:team:robot", "aud": test.audience,
				"iat": float64(epoch.Unix()), "nbf": float64(epoch.Unix()), "exp": float64(expires.Unix()), "kubernetes.io": kubernetes,
			}
			expect.Equal(t, want, got, "claims")
			expect.Equal(t, test.told, told, "warnings")
		})
	}
}

func TestTokenCreateRefuses(t *testing.T) {
	t.Parallel()
	seconds := func(lifetime *int64) func(*authenticationv1.TokenRequest) {
		return func(request *authenticationv1.TokenRequest) { request.Spec.ExpirationSeconds = lifetime }
	}
	tests := []struct {
		name, account string
		change        func(*authenticationv1.TokenRequest)
		is            func(error) bool
		want          string
	}{
		{"no such account", "missing", nil, apierrors.IsNotFound, `serviceaccounts "missing" not found`},
		{"account in deletion", "ending", nil, apierrors.IsConflict, "being deleted"},
		{"another name", "robot", func(r *authenticationv1.TokenRequest) { r.Name = "other" }, apierrors.IsInvalid, "metadata.name"},
		{"another namespace", "robot", func(r *authenticationv1.TokenRequest) { r.Namespace = "other" }, apierrors.IsInvalid, "metadata.namespace"},
		{"another UID", "robot", func(r *authenticationv1.TokenRequest) { r.UID = "other" }, apierrors.IsConflict, "UID"},
		{"no lifetime", "robot", seconds(nil), apierrors.IsInvalid, "spec.expirationSeconds"},
		{"negative lifetime", "robot", seconds(new(int64(-1))), apierrors.IsInvalid, "less than 10 minutes"},
		{"short lifetime", "robot", seconds(new(int64(599))), apierrors.IsInvalid, "less than 10 minutes"},
		{"long lifetime", "robot", seconds(new(int64(1<<32 + 1))), apierrors.IsInvalid, "larger than 2^32"},
		{"bound to a Pod", "robot", bind("v1", "Pod", "p", ""), apierrors.IsBadRequest, "annex has no Pods"},
		{"bound to a Node", "robot", bind("v1", "Node", "n", ""), apierrors.IsBadRequest, "annex has no Nodes"},
		{"bound to a ConfigMap", "robot", bind("v1", "ConfigMap", "c", ""), apierrors.IsBadRequest, "cannot bind token to object of type"},
		{"bound to a Secret of another group", "robot", bind("example.com/v1", "Secret", "vault", ""), apierrors.IsBadRequest, "cannot bind token to object of type"},
		{"bound to no Secret", "robot", bind("v1", "Secret", "absent", ""), apierrors.IsNotFound, `secrets "absent" not found`},
		{"bound to a Secret made again", "robot", bind("v1", "Secret", "vault", "other"), apierrors.IsConflict, "UID"},
		{"bound to a Secret in deletion", "robot", bind("v1", "Secret", "ending", "uid-of-this"), apierrors.IsConflict, "being deleted"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var told recordedWarnings
			_, err := newTestTokenREST(t, 0).Create(tokenContext(t, &told), test.account, tokenRequest(test.change), rest.ValidateAllObjectFunc, nil)
			if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want another kind or one with %q", err, test.want)
			}
		})
	}
}

// TestTokenCreateCallsAdmission checks that admission receives the complete request and can
// refuse it.
func TestTokenCreateCallsAdmission(t *testing.T) {
	t.Parallel()
	var told recordedWarnings
	refused := errors.New("refused")
	_, err := newTestTokenREST(t, 0).Create(tokenContext(t, &told), "robot", tokenRequest(nil), func(_ context.Context, object runtime.Object) error {
		if seen := object.(*authenticationv1.TokenRequest); seen.Name != "robot" || len(seen.Spec.Audiences) != 1 {
			t.Errorf("admission saw %v", seen)
		}
		return refused
	}, nil)
	if !errors.Is(err, refused) {
		t.Errorf("error %v, want that of admission", err)
	}
}

// TestTokenCreateIsTraceable checks that the audit log identifies each token.
func TestTokenCreateIsTraceable(t *testing.T) {
	t.Parallel()
	var told recordedWarnings
	ctx := audit.WithAuditContext(tokenContext(t, &told))
	event := audit.AuditContextFrom(ctx)
	expect.NoError(t, event.Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil))
	object, err := newTestTokenREST(t, 0).Create(ctx, "robot", tokenRequest(nil), rest.ValidateAllObjectFunc, nil)
	expect.NoError(t, err)
	id, _ := claimsOf(t, object.(*authenticationv1.TokenRequest).Status.Token)["jti"].(string)
	if got, _ := event.GetEventAnnotation("authentication.kubernetes.io/issued-credential-id"); id == "" || got != "JTI="+id {
		t.Errorf("the audit event has %q, the token %q", got, id)
	}
}
