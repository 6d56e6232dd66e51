// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestRevocation changes the objects of a token after the token was cached.
func TestRevocation(t *testing.T) {
	t.Parallel()
	ending := metav1.NewTime(epoch)
	deletedAccount, otherAccount := robot.DeepCopy(), robot.DeepCopy()
	deletedAccount.DeletionTimestamp, otherAccount.UID = &ending, "other-uid"
	deletedSecret, otherSecret := vault.DeepCopy(), vault.DeepCopy()
	deletedSecret.DeletionTimestamp, otherSecret.UID = &ending, "other-uid"
	// What is stored; nil means that it is gone.
	for name, test := range map[string]struct {
		account *corev1.ServiceAccount
		secret  *corev1.Secret
		want    string // of the error, empty when the token is good
	}{
		"nothing changed":             {account: robot, secret: vault},
		"service account deleted":     {secret: vault, want: "service account team/robot of the token no longer exists"},
		"service account in deletion": {account: deletedAccount, secret: vault, want: "no longer exists"},
		"service account made again":  {account: otherAccount, secret: vault, want: "was replaced by another one of that name"},
		"Secret deleted":              {account: robot, want: "Secret team/vault that the token is bound to no longer exists"},
		"Secret in deletion":          {account: robot, secret: deletedSecret, want: "no longer exists"},
		"Secret made again":           {account: robot, secret: otherSecret, want: "was replaced by another one of that name"},
	} {
		// The cache may be behind in that it has nothing yet.
		for cached, fill := range map[string]bool{"cache knows": true, "cache is empty": false} {
			t.Run(name+", "+cached, func(t *testing.T) {
				t.Parallel()
				w := newFixture(t, robot, vault)
				token := w.issue(t, vault, "annex")
				if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); !ok || err != nil {
					t.Fatalf("before: recognised %t, error %v", ok, err)
				}
				w.store(t, test.account, test.secret, fill)
				_, ok, err := w.authenticator.AuthenticateToken(t.Context(), token)
				if ok != (test.want == "") {
					t.Fatalf("recognised %t, error %v", ok, err)
				}
				if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("error %v, want one with %q", err, test.want)
				}
				w.live.ClearActions()
				if _, again, err := w.authenticator.AuthenticateToken(t.Context(), token); again != ok || again == (err != nil) {
					t.Errorf("again: recognised %t, error %v", again, err)
				}
				if actions := w.live.Actions(); !ok && len(actions) > 0 {
					t.Errorf("asked the store again about a token that is not good any more: %v", actions)
				}
			})
		}
	}
}

// store replaces all objects, in the informers' caches too if cached is set.
func (w *fixture) store(t *testing.T, account *corev1.ServiceAccount, secret *corev1.Secret, fill bool) {
	t.Helper()
	for _, change := range []error{
		w.live.CoreV1().ServiceAccounts("team").Delete(t.Context(), "robot", metav1.DeleteOptions{}),
		w.live.CoreV1().Secrets("team").Delete(t.Context(), "vault", metav1.DeleteOptions{}),
		w.cachedAccounts.Replace(nil, ""), w.cachedSecrets.Replace(nil, ""),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	var errs []error
	if account != nil {
		errs = append(errs, w.live.Tracker().Add(account))
		if fill {
			errs = append(errs, w.cachedAccounts.Add(account))
		}
	}
	if secret != nil {
		errs = append(errs, w.live.Tracker().Add(secret))
		if fill {
			errs = append(errs, w.cachedSecrets.Add(secret))
		}
	}
	for _, err := range errs {
		expect.NoError(t, err)
	}
}

// TestRecreatedBeforeTheCacheUpdates uses a token of a service account whose previous
// instance is still in the cache.
func TestRecreatedBeforeTheCacheUpdates(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot)
	token := w.issue(t, nil, "annex")
	before := robot.DeepCopy()
	before.UID = "uid-before"
	expect.NoError(t, w.cachedAccounts.Update(before))
	if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); !ok || err != nil {
		t.Errorf("recognised %t, error %v", ok, err)
	}
}

func TestCacheIsEnough(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot, vault)
	if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), w.issue(t, vault, "annex")); !ok || err != nil {
		t.Fatalf("recognised %t, error %v", ok, err)
	}
	if actions := w.live.Actions(); len(actions) > 0 {
		t.Errorf("asked the store: %v", actions)
	}
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot)
	token := w.issue(t, nil, "annex")
	w.live.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	expect.NoError(t, w.cachedAccounts.Delete(robot))
	if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); ok || err == nil || !strings.Contains(err.Error(), "cannot be read: away") {
		t.Errorf("recognised %t, error %v; want it refused", ok, err)
	}
	expect.NoError(t, w.cachedAccounts.Add(robot))
	if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); !ok || err != nil {
		t.Errorf("once it is known again: recognised %t, error %v", ok, err)
	}
}
