// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/subtle"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	corev1listers "k8s.io/client-go/listers/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	bootstraptokens "k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

type bootstrapTokens struct {
	secrets corev1listers.SecretNamespaceLister
	clock   clock.PassiveClock
}

// NewBootstrapTokens returns an authenticator of bootstrap tokens: short passwords in
// Secrets of kube-system, for callers without other credentials.
func NewBootstrapTokens(secrets corev1listers.SecretNamespaceLister) authenticator.Token {
	return &bootstrapTokens{secrets: secrets, clock: clock.RealClock{}}
}

// AuthenticateToken returns the user of a token. The reason of a rejection is only
// logged, and at a high verbosity: any caller may try tokens.
func (a *bootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id, password, _ := bootstraptokens.ParseToken(token)
	if id == "" {
		// It is not a bootstrap token.
		return nil, false, nil
	}
	secret, err := a.secrets.Get(bootstrapapi.BootstrapTokenSecretPrefix + id)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the Secret of the bootstrap token %s: %w", id, err)
	}
	if why := a.refuse(secret, id, password); why != "" {
		klog.FromContext(ctx).V(3).Info("Refused a bootstrap token", "secret", klog.KObj(secret), "reason", why)
		return nil, false, nil
	}
	groups, err := bootstrapsecrets.GetGroups(secret)
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Refused a bootstrap token", "secret", klog.KObj(secret), "reason", "its groups are not valid", "err", err)
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapapi.BootstrapUserPrefix + id, Groups: groups}}, true, nil
}

// refuse returns why the token is invalid, or "". The password is checked first, so
// that attempts reveal nothing else.
func (a *bootstrapTokens) refuse(secret *corev1.Secret, id, password string) string {
	wanted := bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey)
	switch {
	case subtle.ConstantTimeCompare([]byte(wanted), []byte(password)) != 1:
		return "the password is wrong"
	case secret.Type != bootstrapapi.SecretTypeBootstrapToken:
		return "the Secret is of another type"
	case bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey) != id:
		return "the Secret has another token-id than its name"
	case secret.DeletionTimestamp != nil:
		return "the Secret is being deleted"
	case bootstrapsecrets.HasExpired(secret, a.clock.Now()):
		return "it has expired"
	case bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenUsageAuthentication) != "true":
		return "it is not meant for logins"
	}
	return ""
}
