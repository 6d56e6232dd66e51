// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// createMigration creates a Migration in a phase, and returns its UID.
func createMigration(t *testing.T, endpoints typed.Endpoints, name, resource, from, to string, phase v1alpha1.MigrationPhase) types.UID {
	t.Helper()
	ctx := typedtest.Request(t, "")
	created, err := typedtest.Create(ctx, endpoints["migrations"], &v1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MigrationSpec{Resource: resource, StoreName: to, Switch: v1alpha1.MigrationSwitchAutomatic},
	})
	expect.NoError(t, err, "create the Migration %s", name)
	created.Status.FromStoreName, created.Status.Phase = from, phase
	_, err = typedtest.Update(ctx, endpoints["migrations/status"], created)
	expect.NoError(t, err, "update the status of the Migration %s", name)
	return created.UID
}

func bind(t *testing.T, endpoints typed.Endpoints, name string, binding *v1alpha1.HostedResourceBinding) (*v1alpha1.HostedResourceBinding, error) {
	t.Helper()
	answer, err := endpoints["hostedresources/binding"].(rest.NamedCreater).Create(typedtest.Request(t, ""), name, binding, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return answer.(*v1alpha1.HostedResourceBinding), nil
}

func TestBind(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	createStores(t, endpoints, "default", "fast", "leaving")
	expect.NoError(t, typedtest.Delete(typedtest.Request(t, ""), endpoints["stores"], "leaving"), "delete a Store")
	createHosted(t, endpoints, "free.example.com", "")
	createHosted(t, endpoints, "taken.example.com", "fast")
	createHosted(t, endpoints, "other.example.com", "fast")
	switching := createMigration(t, endpoints, "switching", "taken.example.com", "fast", "default", v1alpha1.MigrationSwitching)
	following := createMigration(t, endpoints, "following", "taken.example.com", "fast", "default", v1alpha1.MigrationFollowing)
	for name, test := range map[string]struct {
		resource string
		binding  v1alpha1.HostedResourceBinding
		// is checks the type of the error, words are part of its message.
		is    func(error) bool
		words string
	}{
		"no such resource":             {"lost.example.com", v1alpha1.HostedResourceBinding{StoreName: "fast"}, apierrors.IsNotFound, "lost.example.com"},
		"no Store":                     {"free.example.com", v1alpha1.HostedResourceBinding{}, apierrors.IsInvalid, "storeName: Required"},
		"no Store's name":              {"free.example.com", v1alpha1.HostedResourceBinding{StoreName: "A_B"}, apierrors.IsInvalid, "storeName: Invalid"},
		"unknown Store":                {"free.example.com", v1alpha1.HostedResourceBinding{StoreName: "slow"}, apierrors.IsInvalid, `storeName: Not found: "slow"`},
		"Store that is being deleted":  {"free.example.com", v1alpha1.HostedResourceBinding{StoreName: "leaving"}, apierrors.IsConflict, `"leaving": it is being deleted`},
		"another name":                 {"free.example.com", v1alpha1.HostedResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: "x.example.com"}, StoreName: "fast"}, apierrors.IsInvalid, "metadata.name"},
		"another UID":                  {"free.example.com", v1alpha1.HostedResourceBinding{ObjectMeta: metav1.ObjectMeta{UID: "1"}, StoreName: "fast"}, apierrors.IsConflict, "it has the UID"},
		"an older version":             {"free.example.com", v1alpha1.HostedResourceBinding{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, StoreName: "fast"}, apierrors.IsConflict, "it has been changed"},
		"placed elsewhere":             {"taken.example.com", v1alpha1.HostedResourceBinding{StoreName: "default"}, apierrors.IsConflict, `it is on the Store "fast" already`},
		"for no Migration":             {"taken.example.com", v1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: "1"}, apierrors.IsConflict, `no Migration with the UID 1 switches it from the Store "fast" to "default"`},
		"for another Store":            {"taken.example.com", v1alpha1.HostedResourceBinding{StoreName: "leaving", MigrationUID: switching}, apierrors.IsConflict, "no Migration"},
		"for one that does not switch": {"taken.example.com", v1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: following}, apierrors.IsConflict, "no Migration"},
		"for one of another resource":  {"other.example.com", v1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: switching}, apierrors.IsConflict, "no Migration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bind(t, endpoints, test.resource, &test.binding)
			if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want an error with %q", err, test.words)
			}
		})
	}

	for name, test := range map[string]struct {
		binding v1alpha1.HostedResourceBinding
		reason  string
	}{
		"free.example.com":  {v1alpha1.HostedResourceBinding{StoreName: "fast"}, "Bound"},
		"taken.example.com": {v1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: switching}, "Moved"},
	} {
		for range 2 { // a retry is answered alike
			answer, err := bind(t, endpoints, name, test.binding.DeepCopy())
			expect.NoError(t, err)
			if answer.StoreName != test.binding.StoreName || answer.Name != name || answer.UID == "" {
				t.Errorf("answer %+v", answer)
			}
			hosted := getHosted(t, endpoints, name)
			scheduled := meta.FindStatusCondition(hosted.Status.Conditions, v1alpha1.HostedResourceScheduled)
			if hosted.Spec.StoreName != test.binding.StoreName || hosted.Generation != 2 || scheduled == nil ||
				scheduled.Status != metav1.ConditionTrue || scheduled.ObservedGeneration != 2 || scheduled.Reason != test.reason {
				t.Errorf("Store %q, generation %d, Scheduled %+v; want %s, 2 and %s", hosted.Spec.StoreName, hosted.Generation, scheduled, test.binding.StoreName, test.reason)
			}
		}
	}
}

func TestBindWithoutConsequences(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	createStores(t, endpoints, "fast")
	createHosted(t, endpoints, "free.example.com", "")
	endpoint, binding := endpoints["hostedresources/binding"].(rest.NamedCreater), &v1alpha1.HostedResourceBinding{StoreName: "fast"}
	refused := errors.New("refused by admission")
	refuse := func(context.Context, runtime.Object) error { return refused }
	if _, err := endpoint.Create(typedtest.Request(t, ""), "free.example.com", binding, refuse, &metav1.CreateOptions{}); !errors.Is(err, refused) {
		t.Errorf("refused by admission: %v", err)
	}
	dryRun := &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := endpoint.Create(typedtest.Request(t, ""), "free.example.com", binding, rest.ValidateAllObjectFunc, dryRun)
	expect.Succeeds(t, err, "dry run")
	if on := getHosted(t, endpoints, "free.example.com").Spec.StoreName; on != "" {
		t.Errorf("it was placed on %q", on)
	}
}
