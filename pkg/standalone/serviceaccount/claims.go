// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"errors"
	"fmt"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	apiserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// The clock of a replica that issued a token may be clockSkew ahead. An expiry is exact.
const clockSkew = time.Minute

// claims are the payload of a token, with the names that Kubernetes gives them.
type claims struct {
	jwt.Claims

	Kubernetes *kubernetesClaims `json:"kubernetes.io,omitempty"`
}

// kubernetesClaims name the service account, and the objects that must exist while the
// token is valid.
type kubernetesClaims struct {
	Namespace      string     `json:"namespace,omitempty"`
	ServiceAccount reference  `json:"serviceaccount"`
	Secret         *reference `json:"secret,omitempty"`
	// annex never sets Pod and Node. A token that has them is rejected.
	Pod  *reference `json:"pod,omitempty"`
	Node *reference `json:"node,omitempty"`
}

// reference is one object, and not a later one of the same name.
type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

func (r *reference) complete() bool { return r.Name != "" && r.UID != "" }

// validate checks the claims that are independent of time.
func (c *claims) validate() error {
	k := c.Kubernetes
	switch {
	case k == nil || k.Namespace == "" || !k.ServiceAccount.complete():
		return errors.New("the token does not name its service account")
	case c.Subject != apiserviceaccount.MakeUsername(k.Namespace, k.ServiceAccount.Name):
		return fmt.Errorf("the token's subject %q is not its service account %s/%s", c.Subject, k.Namespace, k.ServiceAccount.Name)
	case c.Expiry == nil:
		return errors.New("the token does not expire")
	case len(c.Audience) == 0:
		return errors.New("the token is for no audience")
	case k.Pod != nil || k.Node != nil:
		return errors.New("the token is bound to a Pod or a Node, and annex has neither")
	case k.Secret != nil && !k.Secret.complete():
		return errors.New("the token does not name the Secret it is bound to")
	}
	return nil
}

// validateTime checks the claims that depend on time.
func (c *claims) validateTime(now time.Time) error {
	switch {
	case !now.Before(c.Expiry.Time()):
		return fmt.Errorf("the token has expired at %s", c.Expiry.Time().UTC().Format(time.RFC3339))
	case c.NotBefore != nil && now.Add(clockSkew).Before(c.NotBefore.Time()):
		return fmt.Errorf("the token is not good before %s", c.NotBefore.Time().UTC().Format(time.RFC3339))
	case c.IssuedAt != nil && now.Add(clockSkew).Before(c.IssuedAt.Time()):
		return errors.New("the token was issued in the future")
	}
	return nil
}
