// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestTokens requests tokens with all options of kubectl. Their use and expiry are tested by
// docs/service-accounts.md, which TestDocs types.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.kubectl.run(t, "create", "serviceaccount", "robot", "-n", namespace)
	s.kubectl.run(t, "create", "secret", "generic", "lock", "-n", namespace)
	create := []string{"create", "token", "robot", "-n", namespace}

	asked := time.Now()
	raw := s.kubectl.run(t, append(create, "--audience=vault", "--audience=registry", "--duration=2h",
		"--bound-object-kind=Secret", "--bound-object-name=lock", "-o", "json")...)
	var answer authenticationv1.TokenRequest
	expect.NoError(t, json.Unmarshal([]byte(raw), &answer), "%s", raw)
	if left := answer.Status.ExpirationTimestamp.Sub(asked); left < 2*time.Hour-time.Second || left > 2*time.Hour+poll.Timeout {
		t.Errorf("valid for %s, want two hours", left)
	}
	if !slices.Equal(answer.Spec.Audiences, []string{"vault", "registry"}) {
		t.Errorf("audiences %q", answer.Spec.Audiences)
	}
	if bound := answer.Spec.BoundObjectRef; bound == nil || bound.Kind != "Secret" || bound.Name != "lock" {
		t.Errorf("bound to %v", bound)
	}

	s.kubectl.refuse(t, "", append(create, "--duration=1m"), "spec.expirationSeconds", "10 minutes")
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Pod", "--bound-object-name=web"), "annex has no Pods")
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Node", "--bound-object-name=worker"), "annex has no Nodes")
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Secret", "--bound-object-name=absent"), `secrets "absent" not found`)
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Secret", "--bound-object-name=lock", "--bound-object-uid=other"), "UID")
	s.kubectl.refuse(t, "", []string{"create", "token", "missing", "-n", namespace}, `serviceaccounts "missing" not found`)
}
