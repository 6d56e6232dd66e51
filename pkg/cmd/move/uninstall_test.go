// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func policy(name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func inSystem(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "annex-system", Name: name}
}

// installedAnnex is a main cluster with a moved group.
func installedAnnex() *fixture {
	f := moved()
	f.routes = []runtime.Object{grouptest.Published("hosting.annex.dev", "v1alpha1", ""), grouptest.Published(group, "v1", "")}
	f.kubeObjects = []runtime.Object{
		policy("annex-freeze.example.com"), policy("annex-hold-garbage-collector.other.com"),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "annex-hold-garbage-collector.other.com"}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "annex-system", Name: "annex", Labels: map[string]string{"app.kubernetes.io/name": "annex"}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "annex-hosted-old.com", Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a-chart's", Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}}},
		&rbacv1.Role{ObjectMeta: inSystem("annex-hosted-old.com")}, &rbacv1.Role{ObjectMeta: inSystem("annex")},
		&rbacv1.RoleBinding{ObjectMeta: inSystem("annex-hosted-old.com")},
		&corev1.ConfigMap{ObjectMeta: inSystem("annex-revision-7")}, &corev1.ConfigMap{ObjectMeta: inSystem("annex-serving-ca")}, &corev1.ConfigMap{ObjectMeta: inSystem("other")},
		&corev1.Secret{ObjectMeta: inSystem("annex-serving-ca")}, &corev1.Secret{ObjectMeta: inSystem("annex-etcd")},
		&coordinationv1.Lease{ObjectMeta: inSystem("annex-controllers"), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("annex-0"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: noon},
		}},
	}
	return f
}

// startUninstall starts a session in which a Rollback that completes gives the group back, and annex
// stops when its StatefulSet is scaled.
func startUninstall(t *testing.T, f *fixture, gives bool) *session {
	t.Helper()
	s := f.start(t)
	f.hosting.PrependReactor("create", "migrations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if f.status.Phase == hostingv1alpha1.MigrationCompleted && gives {
			expect.NoError(t, s.APIServices.Delete(t.Context(), "v1."+group, metav1.DeleteOptions{}))
			expect.NoError(t, s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), "annex-freeze.example.com", metav1.DeleteOptions{}))
			for _, name := range both {
				expect.NoError(t, f.hosting.Tracker().Delete(hostingv1alpha1.SchemeGroupVersion.WithResource("hostedresources"), "", name))
			}
		}
		return false, nil, nil
	})
	f.meta.PrependReactor("patch", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		released := &coordinationv1.Lease{ObjectMeta: inSystem("annex-controllers")}
		return false, nil, f.kube.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), released, "annex-system")
	})
	return s
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	f := installedAnnex()
	s := startUninstall(t, f, true)
	expect.NoError(t, s.uninstall(t.Context(), flags{yes: true}))
	expect.Contains(t, f.out.String(), `annex has something of these groups of https://main:

GROUP         STATE        RESOURCES   OBJECTS   BYTES
example.com   Moved        2           4         4Ki
other.com     Not served   0           0         0

`, "The main cluster serves example.com.\n", `
validatingadmissionpolicybinding.admissionregistration.k8s.io/annex-hold-garbage-collector.other.com deleted
validatingadmissionpolicy.admissionregistration.k8s.io/annex-hold-garbage-collector.other.com deleted
statefulset.apps/annex scaled to 0
apiservice.apiregistration.k8s.io/v1alpha1.hosting.annex.dev deleted
clusterrole.rbac.authorization.k8s.io/annex-hosted-old.com deleted
rolebinding.rbac.authorization.k8s.io/annex-hosted-old.com deleted
role.rbac.authorization.k8s.io/annex-hosted-old.com deleted
configmap/annex-revision-7 deleted
configmap/annex-serving-ca deleted
lease.coordination.k8s.io/annex-controllers deleted
secret/annex-serving-ca deleted

annex is uninstalled.`, "  kubectl delete -k artifacts/deploy/base --ignore-not-found\n")
	f.fitsTerminal(t)
	expect.Get(t, f.kube.RbacV1().ClusterRoles(), "a-chart's")
	expect.Get(t, f.kube.RbacV1().Roles("annex-system"), "annex")
	expect.Get(t, f.kube.CoreV1().ConfigMaps("annex-system"), "other")
	expect.Get(t, f.kube.CoreV1().Secrets("annex-system"), "annex-etcd")
	// A second run finds nothing more to remove.
	f.out.Reset()
	expect.NoError(t, s.uninstall(t.Context(), flags{yes: true}))
	expect.Contains(t, f.out.String(), "annex serves no group of https://main.\n")
}

func TestUninstallAsks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		typed string
		flags flags
		err   string
	}{
		"yes":         {"yes\n", flags{}, ""},
		"no":          {"no\n", flags{}, "not confirmed: type yes, or give --yes"},
		"no terminal": {"", flags{}, "not confirmed: type yes, or give --yes"},
		"dry run":     {"yes\n", flags{dryRun: true}, "uninstall: annex serves example.com, which kubectl annex uninstall rolls back first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := installedAnnex()
			f.typed = test.typed
			expect.ErrorOrNone(t, startUninstall(t, f, true).uninstall(t.Context(), test.flags), test.err)
			if f.changed() != (test.err == "") {
				t.Errorf("changed: %t", f.changed())
			}
		})
	}
}

// TestUninstallIsRefused: the error names the group, and nothing is changed.
func TestUninstallIsRefused(t *testing.T) {
	t.Parallel()
	notServed := func(f *fixture) { f.routes = f.routes[:1] }
	for name, test := range map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"no definition": {func(f *fixture) { f.definitions = []string{gadgets} }, "example.com: the main cluster has no definition widgets.example.com"},
		"moving": {func(f *fixture) {
			f.annex = append(f.annex, migration("new", hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationStatus{}))
		}, "example.com: migration.hosting.annex.dev/new is under way (Move)"},
		"other data":         {func(f *fixture) { f.annex = nil }, "example.com: the main cluster sends its requests to annex, which has nothing of it"},
		"frozen, not served": {notServed, "example.com: the main cluster keeps a copy for annex, but does not send its requests there: see kubectl annex doctor"},
		"not served": {func(f *fixture) { notServed(f); f.kubeObjects = nil; f.annex = inAnnex() },
			"example.com: annex has 4 objects of it, and the main cluster does not send its requests there"},
		"the temporary version is left": {func(f *fixture) {
			f.kubeObjects, f.annex = nil, nil
			f.routes[1] = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: hostingv1alpha1.MainCopyVersion}}
		}, "example.com: the main cluster keeps a copy for annex"},
		"annex is gone": {func(f *fixture) { f.routes = nil }, "example.com: an annex that does not run has its objects: start it with its data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := installedAnnex()
			test.change(f)
			expect.ErrorLine(t, f.start(t).uninstall(t.Context(), flags{yes: true}), "uninstall: nothing was changed: "+test.want)
			if f.changed() {
				t.Error("something was written")
			}
		})
	}
}

func TestUninstallWithoutAnswer(t *testing.T) {
	t.Parallel()
	f := installedAnnex()
	s := f.start(t)
	f.hosting.PrependReactor("list", "hostedresources", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("no endpoints")
	})
	expect.ErrorLine(t, s.uninstall(t.Context(), flags{yes: true}),
		"uninstall: nothing was changed: list what annex has: no endpoints: annex does not answer, see kubectl annex doctor (it serves example.com)")
	if f.changed() {
		t.Error("something was written")
	}
}

// TestUninstallStops: nothing is removed unless all groups are back.
func TestUninstallStops(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status hostingv1alpha1.MigrationStatus
		gives  bool
		want   string
	}{
		"a rollback fails":          {ended(hostingv1alpha1.MigrationFailed, "Different", "the copy differs"), true, "uninstall: rollback example.com: Different: the copy differs. Nothing was removed"},
		"a rollback gives not back": {completed(), false, "uninstall: nothing was removed: annex serves example.com again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := installedAnnex()
			f.status = test.status
			s := startUninstall(t, f, test.gives)
			s.settleTimeout = s.rightsTimeout
			expect.ErrorLine(t, s.uninstall(t.Context(), flags{yes: true}), test.want)
			expect.Get(t, s.APIServices, "v1alpha1.hosting.annex.dev")
			expect.Get(t, s.APIServices, "v1."+group)
			expect.Get(t, f.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), "annex-freeze.example.com")
			if slices.ContainsFunc(f.meta.Actions(), func(action clienttesting.Action) bool { return action.Matches("patch", "statefulsets") }) {
				t.Error("annex was stopped")
			}
		})
	}
}

// TestUninstallReleases removes labels of definitions that annex does not serve.
func TestUninstallReleases(t *testing.T) {
	t.Parallel()
	f := installedAnnex()
	f.routes, f.annex = f.routes[:1], nil
	f.kubeObjects = slices.DeleteFunc(f.kubeObjects, func(object runtime.Object) bool {
		found, is := object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		return is && found.Name == "annex-freeze.example.com"
	})
	s := startUninstall(t, f, true)
	for _, name := range both {
		label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, hostingv1alpha1.HostedLabel)
		_, err := f.meta.Resource(definitionsResource).Patch(t.Context(), name, types.MergePatchType, label, metav1.PatchOptions{})
		expect.NoError(t, err)
	}
	expect.NoError(t, s.uninstall(t.Context(), flags{yes: true}))
	expect.Contains(t, f.out.String(), "example.com   Not served   0 ", "customresourcedefinition.apiextensions.k8s.io/widgets.example.com unlabeled\n")
	for _, name := range both {
		found, err := f.meta.Resource(definitionsResource).Get(t.Context(), name, metav1.GetOptions{})
		expect.NoError(t, err)
		if found.Labels[hostingv1alpha1.HostedLabel] != "" {
			t.Errorf("%s has the labels %v", name, found.Labels)
		}
	}
}
