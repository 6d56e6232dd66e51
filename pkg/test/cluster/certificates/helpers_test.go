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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func sharedSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	return expect.Get(t, mainClient(t).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName))
}

// deleteCA deletes the CA's Secret, which a running replica restores.
func deleteCA(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(mainCluster.Config)
	expect.NoError(t, err)
	// In a cleanup the test's context is canceled.
	err = client.CoreV1().Secrets(annextest.Namespace).Delete(context.WithoutCancel(t.Context()), servingca.SecretName(annextest.ServiceName), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func annotate(t *testing.T, annotation, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	_, err := mainClient(t).CoreV1().Secrets(annextest.Namespace).Patch(t.Context(), servingca.SecretName(annextest.ServiceName), types.MergePatchType, patch, metav1.PatchOptions{})
	expect.NoError(t, err)
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
	_, err = mainAggregator(t).ApiregistrationV1().APIServices().Patch(t.Context(), apiService, types.MergePatchType, patch, metav1.PatchOptions{})
	expect.NoError(t, err)
}

func metrics(t *testing.T, annex *annextest.Annex) string {
	t.Helper()
	annexClient, err := kubernetes.NewForConfig(annex.AnnexConfig)
	expect.NoError(t, err)
	raw, err := annexClient.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
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
