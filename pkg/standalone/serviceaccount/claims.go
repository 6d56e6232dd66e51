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

// clockSkew is how far the clock of a replica that made a token may be ahead. An
// expiry is taken literally.
const clockSkew = time.Minute

// claims are the payload of a token, with the names that Kubernetes gives them.
type claims struct {
	jwt.Claims

	Kubernetes *kubernetesClaims `json:"kubernetes.io,omitempty"`
}

// kubernetesClaims say whose token it is, and what else has to exist for as long as
// it is good.
type kubernetesClaims struct {
	Namespace      string     `json:"namespace,omitempty"`
	ServiceAccount reference  `json:"serviceaccount"`
	Secret         *reference `json:"secret,omitempty"`
	// Pod and Node are never in a token of annex's. One that has them is refused.
	Pod  *reference `json:"pod,omitempty"`
	Node *reference `json:"node,omitempty"`
}

// reference is one object and not another that later had its name.
type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

func (r *reference) complete() bool { return r.Name != "" && r.UID != "" }

// validate checks all that does not change while the token is good.
func (c *claims) validate() error {
	k := c.Kubernetes
	switch {
	case k == nil || k.Namespace == "" || !k.ServiceAccount.complete():
		return errors.New("the token does not say which service account it is of")
	case c.Subject != apiserviceaccount.MakeUsername(k.Namespace, k.ServiceAccount.Name):
		return fmt.Errorf("the token's subject %q is not its service account %s/%s", c.Subject, k.Namespace, k.ServiceAccount.Name)
	case c.Expiry == nil:
		return errors.New("the token does not expire")
	case len(c.Audience) == 0:
		return errors.New("the token is for no audience")
	case k.Pod != nil || k.Node != nil:
		return errors.New("the token is bound to a Pod or a Node, and annex has neither")
	case k.Secret != nil && !k.Secret.complete():
		return errors.New("the token does not say which Secret it is bound to")
	}
	return nil
}

// validateTime checks what the time changes.
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
