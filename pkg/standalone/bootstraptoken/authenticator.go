// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken recognises bootstrap tokens: short passwords that stand in
// Secrets of kube-system, for callers that have no other credentials yet.
package bootstraptoken

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

type tokenAuthenticator struct {
	secrets corev1listers.SecretNamespaceLister
	clock   clock.PassiveClock
}

// NewAuthenticator returns what recognises bootstrap tokens. The lister must be that
// of kube-system.
func NewAuthenticator(secrets corev1listers.SecretNamespaceLister) authenticator.Token {
	return &tokenAuthenticator{secrets: secrets, clock: clock.RealClock{}}
}

// AuthenticateToken returns whose token it is. Why a token is not good is for the log
// only, and at a level that nobody sees who is not looking: anybody may try tokens.
func (a *tokenAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id, password, _ := bootstraptokens.ParseToken(token)
	if id == "" {
		// It is not of this kind.
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

// refuse returns why the token is not good, or "". The password comes first, so that
// nobody learns anything else by trying.
func (a *tokenAuthenticator) refuse(secret *corev1.Secret, id, password string) string {
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
