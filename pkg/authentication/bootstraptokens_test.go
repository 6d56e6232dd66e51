// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// secrets is a lister of one Secret.
type secrets struct {
	corev1listers.SecretNamespaceLister
	secret *corev1.Secret
	err    error
}

func (s secrets) Get(name string) (*corev1.Secret, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.secret == nil || s.secret.Name != name:
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return s.secret, nil
}

// tokenSecret is the Secret of the token abcdef.0123456789abcdef, changed.
func tokenSecret(change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Namespace: "kube-system"},
		Type:       "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id":                       []byte("abcdef"),
			"token-secret":                   []byte("0123456789abcdef"),
			"usage-bootstrap-authentication": []byte("true"),
		},
	}
	if change != nil {
		change(secret)
	}
	return secret
}

func set(key, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[key] = []byte(value) }
}

func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	const good = "abcdef.0123456789abcdef"
	plain := []string{"system:bootstrappers"}
	tests := []struct {
		name   string
		token  string
		change func(*corev1.Secret)
		groups []string // nil when it is refused
	}{
		{name: "good", groups: plain},
		{name: "not expired yet", change: set("expiration", now.Add(time.Second).Format(time.RFC3339)), groups: plain},
		{name: "expired in another time zone", change: set("expiration", "2026-01-02T04:04:05+01:00")},
		{name: "expires now", change: set("expiration", now.Format(time.RFC3339))},
		{name: "expiration that is none", change: set("expiration", "tomorrow")},
		{
			name:   "more groups",
			change: set("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b"),
			groups: []string{"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b"},
		},
		{name: "a group that gives rights", change: set("auth-extra-groups", "system:masters")},
		{name: "one good group and one bad", change: set("auth-extra-groups", "system:bootstrappers:a,system:masters")},
		{name: "an empty group", change: set("auth-extra-groups", "system:bootstrappers:a,")},
		{name: "a group with a line break", change: set("auth-extra-groups", "system:bootstrappers:a\n")},
		{name: "wrong password", token: "abcdef.0123456789abcdeg"},
		{name: "no password in the Secret", change: func(secret *corev1.Secret) { delete(secret.Data, "token-secret") }},
		{name: "unknown id", token: "abcdeg.0123456789abcdef"},
		{name: "another id in the Secret", change: set("token-id", "abcdeg")},
		{name: "no login", change: set("usage-bootstrap-authentication", "True")},
		{name: "usage not set", change: func(secret *corev1.Secret) { delete(secret.Data, "usage-bootstrap-authentication") }},
		{name: "another type", change: func(secret *corev1.Secret) { secret.Type = corev1.SecretTypeOpaque }},
		{name: "being deleted", change: func(secret *corev1.Secret) { secret.DeletionTimestamp = &metav1.Time{Time: now} }},
		{name: "no data", change: func(secret *corev1.Secret) { secret.Data = nil }},
		{name: "capitals", token: "ABCDEF.0123456789abcdef"},
		{name: "longer", token: good + "0"},
		{name: "a line break at the end", token: good + "\n"},
		{name: "no token", token: "."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.token == "" {
				test.token = good
			}
			a := &bootstrapTokens{secrets: secrets{secret: tokenSecret(test.change)}, clock: clocktesting.NewFakePassiveClock(now)}
			response, ok, err := a.AuthenticateToken(t.Context(), test.token)
			expect.NoError(t, err)
			if ok != (test.groups != nil) {
				t.Fatalf("recognised: %t", ok)
			}
			if !ok {
				return
			}
			if name := response.User.GetName(); name != "system:bootstrap:abcdef" {
				t.Errorf("user %s", name)
			}
			expect.Equal(t, test.groups, response.User.GetGroups(), "groups")
		})
	}
}

func TestBootstrapTokensFailClosed(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	a := &bootstrapTokens{secrets: secrets{err: broken}, clock: clock.RealClock{}}
	if _, ok, err := a.AuthenticateToken(t.Context(), "abcdef.0123456789abcdef"); ok || !errors.Is(err, broken) {
		t.Errorf("recognised: %t, error %v; want the lister's error", ok, err)
	}
}
