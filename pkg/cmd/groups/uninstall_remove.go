// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// helmRelease is Helm's annotation on what it has installed.
const helmRelease = "meta.helm.sh/release-name"

// remove removes what annex has written to the main cluster. The main cluster serves all groups. A
// running annex would write its APIService again, so it is stopped before that is deleted.
func (s *session) remove(ctx context.Context, found *installation, timeout time.Duration) error {
	if err := s.removePolicies(ctx, found); err != nil {
		return err
	}
	if err := s.removeLabels(ctx, found); err != nil {
		return err
	}
	if found.Hosting != nil {
		if err := s.stopAnnex(ctx, found.service, timeout); err != nil {
			return err
		}
		if err := s.removeAPIService(ctx, found.service); err != nil {
			return err
		}
	}
	if err := s.removeRoles(ctx); err != nil {
		return err
	}
	if err := s.removeInNamespace(ctx, found.service); err != nil {
		return err
	}
	again, err := s.published(ctx)
	if err == nil && len(again) > 0 {
		err = fmt.Errorf("annex runs and has written APIService %s again: stop all replicas, and type it again", again[0].Name)
	}
	return err
}

// published lists the APIServices that lead to annex.
func (s *session) published(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	list, err := s.apiServices.List(ctx, metav1.ListOptions{LabelSelector: hostingv1alpha1.PublishedByLabel})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices of annex: %w", err)
	}
	return list.Items, nil
}

// remover deletes an object.
type remover func(ctx context.Context, name string, options metav1.DeleteOptions) error

// removeOne deletes an object, if it is there.
func (s *session) removeOne(ctx context.Context, kind, name string, remove remover) error {
	err := remove(ctx, name, metav1.DeleteOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	s.print("%s/%s deleted", kind, name)
	return nil
}

func (s *session) removePolicies(ctx context.Context, found *installation) error {
	admission := s.main.AdmissionregistrationV1()
	for _, g := range found.groups {
		var names []string
		if g.Frozen {
			names = append(names, hostingv1alpha1.FrozenPolicyName(g.Name))
		}
		if g.Reserved {
			names = append(names, hostingv1alpha1.CopyPolicyName(g.Name))
		}
		if g.Held {
			names = append(names, hostingv1alpha1.HoldPolicyName(g.Name))
		}
		for _, name := range names {
			if err := s.removeOne(ctx, "validatingadmissionpolicybinding", name, admission.ValidatingAdmissionPolicyBindings().Delete); err != nil {
				return err
			}
			if err := s.removeOne(ctx, "validatingadmissionpolicy", name, admission.ValidatingAdmissionPolicies().Delete); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeLabels removes the labels of definitions that annex does not serve, and waits until annex
// has removed its finalizers.
func (s *session) removeLabels(ctx context.Context, found *installation) error {
	for _, g := range found.groups {
		for _, name := range g.Labelled {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, hostingv1alpha1.HostedLabel)
			if _, err := s.metadata.Resource(definitionsResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("remove the label of the definition %s: %w", name, err)
			}
			s.print("customresourcedefinition.apiextensions.k8s.io/%s unlabeled", name)
		}
	}
	if found.Hosting == nil {
		return nil
	}
	var left []string
	err := wait.PollUntilContextTimeout(ctx, s.pollInterval, s.settleTimeout, true, func(ctx context.Context) (bool, error) {
		now, err := s.inspect(ctx)
		if err != nil {
			return false, err
		}
		left = append(now.toRollBack(), now.obstacles()...)
		for _, g := range now.groups {
			left = append(left, g.Finalized...)
		}
		return len(left) == 0, nil
	})
	if err != nil && len(left) > 0 {
		return fmt.Errorf("annex has not released %s: type it again", strings.Join(left, ", "))
	}
	return err
}

// stopAnnex scales annex to zero, and returns when no replica runs the controllers.
func (s *session) stopAnnex(ctx context.Context, service maincluster.Service, timeout time.Duration) error {
	selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=annex"}
	patch, apps, scaled := []byte(`{"spec":{"replicas":0}}`), s.main.AppsV1(), 0
	statefulSets, err := apps.StatefulSets(service.Namespace).List(ctx, selector)
	if err != nil {
		return fmt.Errorf("stop annex: list its StatefulSets: %w", err)
	}
	for _, of := range statefulSets.Items {
		if _, err := apps.StatefulSets(of.Namespace).Patch(ctx, of.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("stop annex: scale StatefulSet %s: %w", of.Name, err)
		}
		s.print("statefulset.apps/%s scaled to 0", of.Name)
		scaled++
	}
	deployments, err := apps.Deployments(service.Namespace).List(ctx, selector)
	if err != nil {
		return fmt.Errorf("stop annex: list its Deployments: %w", err)
	}
	for _, of := range deployments.Items {
		if _, err := apps.Deployments(of.Namespace).Patch(ctx, of.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("stop annex: scale Deployment %s: %w", of.Name, err)
		}
		s.print("deployment.apps/%s scaled to 0", of.Name)
		scaled++
	}
	if scaled == 0 {
		s.print("No StatefulSet and no Deployment of %s runs annex: stop it.", service.Namespace)
	}
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	holder := ""
	err = wait.PollUntilContextCancel(ctx, s.pollInterval, true, func(ctx context.Context) (bool, error) {
		lease, err := s.main.CoordinationV1().Leases(service.Namespace).Get(ctx, service.Lease(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		running := s.holderOf(lease)
		if running != "" && running != holder {
			s.print("Waiting until %s has stopped.", running)
		}
		holder = running
		return holder == "", nil
	})
	if err != nil {
		return fmt.Errorf("wait until annex has stopped: %s holds Lease %s: %w", holder, service.Lease(), err)
	}
	return nil
}

// holderOf returns the replica that holds a Lease, or "".
func (s *session) holderOf(lease *coordinationv1.Lease) string {
	valid := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if lease.Spec.RenewTime == nil || s.now().Sub(lease.Spec.RenewTime.Time) > valid {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// removeAPIService deletes the APIService of annex's own group, if no other leads to annex.
func (s *session) removeAPIService(ctx context.Context, service maincluster.Service) error {
	list, err := s.published(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if of := &list[i]; of.Spec.Group != hostingv1alpha1.GroupName {
			return fmt.Errorf("annex published %s while it stopped: start it, with its replicas in namespace %s, and type it again", of.Name, service.Namespace)
		}
	}
	for i := range list {
		if err := s.removeOne(ctx, "apiservice.apiregistration.k8s.io", list[i].Name, s.apiServices.Delete); err != nil {
			return err
		}
	}
	return nil
}

// removeRoles deletes the roles with rights for groups.
func (s *session) removeRoles(ctx context.Context) error {
	rbac, in := s.main.RbacV1(), hostingv1alpha1.NamespaceAnnexSystem
	prefix := hostingv1alpha1.HostedRoleName("")
	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: hostingv1alpha1.AggregateLabel})
	if err != nil {
		return fmt.Errorf("list the ClusterRoles of annex: %w", err)
	}
	bindings, err := rbac.RoleBindings(in).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the RoleBindings of annex: %w", err)
	}
	roles, err := rbac.Roles(in).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Roles of annex: %w", err)
	}
	var errs []error
	removeIf := func(name, kind string, remove remover) {
		if strings.HasPrefix(name, prefix) {
			errs = append(errs, s.removeOne(ctx, kind+".rbac.authorization.k8s.io", name, remove))
		}
	}
	for i := range clusterRoles.Items {
		removeIf(clusterRoles.Items[i].Name, "clusterrole", rbac.ClusterRoles().Delete)
	}
	for i := range bindings.Items {
		removeIf(bindings.Items[i].Name, "rolebinding", rbac.RoleBindings(in).Delete)
	}
	for i := range roles.Items {
		removeIf(roles.Items[i].Name, "role", rbac.Roles(in).Delete)
	}
	return errors.Join(errs...)
}

// removeInNamespace deletes what annex has written to its namespace, and ConfigMaps of rollbacks.
func (s *session) removeInNamespace(ctx context.Context, service maincluster.Service) error {
	configMaps, err := s.main.CoreV1().ConfigMaps(hostingv1alpha1.NamespaceAnnexSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the ConfigMaps of annex: %w", err)
	}
	for i := range configMaps.Items {
		if of := &configMaps.Items[i]; strings.HasPrefix(of.Name, maincopy.RevisionPrefix) {
			if err := s.removeOne(ctx, "configmap", of.Name, s.main.CoreV1().ConfigMaps(of.Namespace).Delete); err != nil {
				return err
			}
		}
	}
	if err := s.removeOne(ctx, "lease.coordination.k8s.io", service.Lease(), s.main.CoordinationV1().Leases(service.Namespace).Delete); err != nil {
		return err
	}
	return s.removeOne(ctx, "secret", servingca.SecretName(service.Name), s.main.CoreV1().Secrets(service.Namespace).Delete)
}

// printNext prints how to delete annex's manifests.
func (s *session) printNext(ctx context.Context, service maincluster.Service) {
	s.print("\nannex is uninstalled. What is left are its manifests, and its volume, if it has one.\nThis deletes both:")
	in, err := s.main.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if err != nil || in.Annotations[helmRelease] == "" {
		s.print("  kubectl delete -k artifacts/deploy/base --ignore-not-found")
		return
	}
	s.print("  helm uninstall %s -n %s", in.Annotations[helmRelease], service.Namespace)
	s.print("  kubectl delete namespace %s", service.Namespace)
}
