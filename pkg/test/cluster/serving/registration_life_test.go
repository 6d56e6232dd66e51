// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// testTwoAnnexes: the second annex publishes nothing, and reports the first one.
func testTwoAnnexes(t *testing.T, first *annextest.Annex) {
	const group, shared = "second.example.com", "shared.example.com"
	define(t, first.AnnexConfig, newDefinition(shared, "v1"))
	expect.NoError(t, first.WaitPublished(t.Context(), shared, "v1"))
	before := map[string]string{}
	for _, name := range []string{hostingName, "v1." + shared} {
		before[name] = getAPIService(t, name).Spec.Service.String()
	}
	allowSecondAnnex(t, "second-annex")
	second := testserver.Start(t, append(first.Flags(), "--publish-service=second-annex/annex:443")...)
	for _, defined := range []string{group, shared} {
		define(t, second.AnnexConfig, newDefinition(defined, "v1"))
		waitPublished(t, second.AnnexConfig, "widgets."+defined, metav1.ConditionFalse, "ForeignAPIService", "annex-system/annex")
	}
	if _, err := apiServices(t).Get(t.Context(), "v1."+group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the second annex published its group: %v", err)
	}
	for name, want := range before {
		if got := getAPIService(t, name).Spec.Service.String(); got != want {
			t.Errorf("the target of %s changed from %s to %s", name, want, got)
		}
	}
	waitPublished(t, first.AnnexConfig, "widgets."+shared, metav1.ConditionTrue, "Published")
}

// allowSecondAnnex gives annex's service account its permissions in another namespace.
func allowSecondAnnex(t *testing.T, namespace string) {
	t.Helper()
	mainKube := kube(t, mainCluster.Config)
	expect.Create(t, mainKube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	role := expect.Get(t, mainKube.RbacV1().Roles(annextest.Namespace), "annex")
	expect.Create(t, mainKube.RbacV1().Roles(namespace), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "annex"}, Rules: role.Rules})
	expect.Create(t, mainKube.RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "annex"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "annex"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: annextest.Namespace, Name: annextest.ServiceAccount}},
	})
}

// testStopped: a stopped annex leaves its APIServices unchanged. The main cluster returns 503 for
// annex's groups, serves all others, and recovers when annex is back.
func testStopped(t *testing.T, annex *annextest.Annex) {
	const group, other = "stopped.example.com", "main.example.com"
	define(t, mainCluster.Config, newDefinition(other, "v1"))
	expect.Create(t, definitions(t, annex.AnnexConfig), newDefinition(group, "v1"))
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	through := widgets(t, mainCluster.Config, group, "v1")
	if _, err := through.Create(t.Context(), newWidget(group, "v1", "kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	names := []string{hostingName, "v1." + group}
	before := map[string]string{}
	for _, name := range names {
		before[name] = managedContent(t, getAPIService(t, name))
	}

	expect.NoError(t, annex.Shutdown())
	poll.UntilDone(t, "the main cluster returns 503", func() (bool, string) {
		_, err := through.List(t.Context(), metav1.ListOptions{})
		return apierrors.IsServiceUnavailable(err), fmt.Sprint(err)
	})
	othersWork(t, other, "just-stopped")
	for _, name := range names {
		poll.UntilDone(t, "the main cluster reports the APIServices as unavailable", func() (bool, string) {
			return !apiregistrationhelper.IsAPIServiceConditionTrue(getAPIService(t, name), apiregistrationv1.Available), name + " is available"
		})
	}
	othersWork(t, other, "seen-stopped")
	for name, want := range before {
		if got := managedContent(t, getAPIService(t, name)); got != want {
			t.Errorf("annex stopped: APIService %s was %s and is %s", name, want, got)
		}
	}

	again, err := annex.Launch(annex.DataDir)
	expect.NoError(t, err)
	t.Cleanup(func() { again.Stop(t) })
	started := time.Now()
	poll.UntilNoError(t, "annex is back", func() error {
		_, err := through.Get(t.Context(), "kept", metav1.GetOptions{})
		return err
	})
	waitPublished(t, again.AnnexConfig, "widgets."+group, metav1.ConditionTrue, "Published")
	t.Logf("the main cluster reached annex again after %s", time.Since(started).Round(100*time.Millisecond))
	for name, want := range before {
		now := getAPIService(t, name)
		delete(now.Annotations, "annex.dev/recheck") // annex triggers probes of the main cluster
		if got := managedContent(t, now); got != want {
			t.Errorf("annex started again: APIService %s was %s and is %s", name, want, got)
		}
	}
}

// othersWork uses the main cluster's own resources, compiled in and custom, and discovery of all
// groups except annex's.
func othersWork(t *testing.T, group, name string) {
	t.Helper()
	mainKube := kube(t, mainCluster.Config)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := mainKube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Errorf("create a ConfigMap: %v", err)
	}
	if _, err := widgets(t, mainCluster.Config, group, "v1").Create(t.Context(), newWidget(group, "v1", name), metav1.CreateOptions{}); err != nil {
		t.Errorf("create an object that the main cluster defines: %v", err)
	}
	_, lists, err := mainKube.Discovery().ServerGroupsAndResources()
	for failed := range discoveryFailures(err) {
		if failed.Group != "hosting.annex.dev" && failed.Group != "stopped.example.com" {
			t.Errorf("discovery of %s fails", failed)
		}
	}
	for _, version := range []string{"v1", "apps/v1", group + "/v1"} {
		if !slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
			return list.GroupVersion == version && len(list.APIResources) > 0
		}) {
			t.Errorf("discovery does not list %s", version)
		}
	}
}

// discoveryFailures returns the group versions whose discovery failed.
func discoveryFailures(err error) map[schema.GroupVersion]error {
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		return failed.Groups
	}
	return nil
}

// TestNotReached: an annex that the main cluster cannot reach publishes only its own group, and
// reports the reason in the condition Published of other resources.
func TestNotReached(t *testing.T) {
	for name, tc := range map[string]struct {
		publishService, mentions string
	}{
		"wrong port":      {"annex-system/annex:1", "connection refused"},
		"no such Service": {"no-service/annex:443", `service/annex in "no-service" is not present`},
	} {
		t.Run(name, func(t *testing.T) {
			const group = "unreached.example.com"
			i := annextest.InstallForTest(t, mainCluster)
			if namespace, _, _ := strings.Cut(tc.publishService, "/"); namespace != annextest.Namespace {
				allowSecondAnnex(t, namespace)
			}
			annex, err := i.Launch(t.TempDir(), "--publish-service="+tc.publishService)
			expect.NoError(t, err)
			t.Cleanup(func() {
				annex.Stop(t)
				for _, name := range []string{hostingName, "v1." + group} {
					if err := apiServices(t).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
				}
			})
			expect.Create(t, definitions(t, annex.AnnexConfig), newDefinition(group, "v1"))
			waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionFalse, "WaitingForAnnex", tc.mentions)
			if _, err := apiServices(t).Get(t.Context(), "v1."+group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("its group was published: %v", err)
			}
		})
	}
}
