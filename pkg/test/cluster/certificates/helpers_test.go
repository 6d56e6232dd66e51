// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package certificates

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func sharedSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	return expect.Get(t, mainClient(t).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName))
}

// deleteCA deletes the CA's Secret, which a running replica restores.
func deleteCA(t *testing.T) {
	t.Helper()
	// In a cleanup the test's context is canceled.
	err := mainClient(t).CoreV1().Secrets(annextest.Namespace).Delete(context.WithoutCancel(t.Context()), servingca.SecretName(annextest.ServiceName), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func annotate(t *testing.T, annotation, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	expect.Patch(t, mainClient(t).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName), patch)
}

func mustParse(t *testing.T, secret *corev1.Secret) *servingca.State {
	t.Helper()
	state, err := servingca.Parse(secret)
	expect.NoError(t, err)
	return state
}

func patchAPIService(t *testing.T, spec map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	expect.NoError(t, err)
	expect.Patch(t, clients.For(t, mainCluster.Config).APIServices, apiService, string(patch))
}

func metrics(t *testing.T, annex *annextest.Annex) string {
	t.Helper()
	raw, err := clients.For(t, annex.AnnexConfig).Kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	return string(raw)
}

func grep(text, part string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// enough reports whether the load is large enough for a check.
func (l *load) enough() (done bool, saw string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proxied >= 100 && l.verified >= 100, fmt.Sprintf("%d requests, %d connections", l.proxied, l.verified)
}
