// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const bootstrapToken corev1.SecretType = "bootstrap.kubernetes.io/token"

func secret(namespace, name string, secretType corev1.SecretType, expiration string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid", ResourceVersion: "1"}, Type: secretType}
	if expiration != "" {
		s.Data = map[string][]byte{"expiration": []byte(expiration)}
	}
	return s
}

// runTokenCleaner runs the controller until the end of the test, and lets it come to rest.
func runTokenCleaner(t *testing.T, annexKube *fake.Clientset) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(annexKube, 0)
	c, err := newTokenCleaner(annexKube.CoreV1().Secrets("kube-system"), factory.Core().V1().Secrets().Informer())
	expect.NoError(t, err)
	controllertest.Run(t, c, 1, factory)
	controllertest.Advance(time.Second)
}

func secretNames(t *testing.T, annexKube *fake.Clientset) []string {
	t.Helper()
	list, err := annexKube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	all := []string{}
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	slices.Sort(all)
	return all
}

func after(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

func TestTokenCleanerDeletesExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexKube := fake.NewClientset(
			secret("kube-system", "expired", bootstrapToken, after(-time.Hour)),
			secret("kube-system", "expires", bootstrapToken, after(time.Hour)),
			secret("kube-system", "prolonged", bootstrapToken, after(time.Hour)),
			secret("kube-system", "forever", bootstrapToken, ""),
			secret("kube-system", "misspelt", bootstrapToken, "yesterday"),
			secret("kube-system", "other-type", corev1.SecretTypeOpaque, after(-time.Hour)),
			secret("default", "other-namespace", bootstrapToken, after(-time.Hour)),
		)
		runTokenCleaner(t, annexKube)
		expect.Equal(t, []string{"expires", "forever", "misspelt", "other-namespace", "other-type", "prolonged"}, secretNames(t, annexKube), "after the start")
		longer := secret("kube-system", "prolonged", bootstrapToken, after(2*time.Hour))
		expect.Update(t, annexKube.CoreV1().Secrets("kube-system"), longer)
		controllertest.Advance(time.Hour)
		expect.Equal(t, []string{"forever", "misspelt", "other-namespace", "other-type", "prolonged"}, secretNames(t, annexKube), "after an hour")
		controllertest.Advance(time.Hour)
		expect.Equal(t, []string{"forever", "misspelt", "other-namespace", "other-type"}, secretNames(t, annexKube), "after two hours")
	})
}

func TestTokenCleanerPreconditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexKube := fake.NewClientset(secret("kube-system", "expired", bootstrapToken, after(-time.Hour)))
		attempts := 0
		annexKube.PrependReactor("delete", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			attempts++
			preconditions := action.(clienttesting.DeleteAction).GetDeleteOptions().Preconditions
			if preconditions == nil || *preconditions.UID != "uid" || *preconditions.ResourceVersion != "1" {
				t.Errorf("preconditions %v", preconditions)
			}
			if attempts == 1 {
				return true, nil, apierrors.NewServiceUnavailable("starting")
			}
			return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "expired", nil)
		})
		runTokenCleaner(t, annexKube)
		controllertest.Advance(time.Minute)
		if attempts != 2 {
			t.Errorf("%d attempts, want one more after the server was not available and none after a conflict", attempts)
		}
	})
}
