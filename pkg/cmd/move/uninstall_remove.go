// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// What annex writes to a main cluster, besides definitions.
var (
	clusterRolesResource = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	rolesResource        = rbacv1.SchemeGroupVersion.WithResource("roles")
	bindingsResource     = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	apiServicesResource  = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
	leasesResource       = coordinationv1.SchemeGroupVersion.WithResource("leases")
	admission            = admissionregistrationv1.SchemeGroupVersion
	core                 = schema.GroupVersion{Version: "v1"}
)

// kindOf returns the name of a resource's kind, as kubectl prints it.
func kindOf(resource schema.GroupVersionResource) string {
	kind := strings.TrimSuffix(resource.Resource, "s")
	if plural, is := strings.CutSuffix(kind, "ie"); is {
		kind = plural + "y"
	}
	return strings.TrimSuffix(kind+"."+resource.Group, ".")
}

func (s *session) remove(ctx context.Context, of schema.GroupVersionResource, namespace, name string) error {
	err := s.Metadata.Resource(of).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete %s %s: %w", kindOf(of), name, err)
	}
	s.print("%s/%s deleted", kindOf(of), name)
	return nil
}

func (s *session) removeAll(ctx context.Context, of schema.GroupVersionResource, namespace, prefix, labels string) error {
	list, err := s.Metadata.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return fmt.Errorf("list what annex has of %s: %w", kindOf(of), err)
	}
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, prefix) {
			if err := s.remove(ctx, of, namespace, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeInstallation removes what annex has written to the main cluster. The main cluster serves all groups. A
// running annex would write its APIService again, so it is stopped before that is deleted.
func (s *session) removeInstallation(ctx context.Context, found *installation, timeout time.Duration) error {
	steps := []func(context.Context, *installation) error{s.removePolicies, s.removeLabels}
	if found.Hosting != nil {
		released := func(ctx context.Context, found *installation) error {
			_, err := s.settled(ctx, found.groups)
			return err
		}
		stop := func(ctx context.Context, found *installation) error { return s.stopAnnex(ctx, found.service, timeout) }
		steps = append(steps, released, stop, s.removeAPIService)
	}
	for _, step := range append(steps, s.removeObjects) {
		if err := step(ctx, found); err != nil {
			return err
		}
	}
	again, err := s.published(ctx)
	if err == nil && len(again) > 0 {
		err = fmt.Errorf("annex runs and has written APIService %s again: stop all replicas, and type it again", again[0].Name)
	}
	return err
}

func (s *session) removePolicies(ctx context.Context, found *installation) error {
	for _, g := range found.groups {
		for _, policy := range []struct {
			name   string
			exists bool
		}{
			{hostingv1alpha1.FrozenPolicyName(g.Name), g.Frozen}, {hostingv1alpha1.CopyPolicyName(g.Name), g.Reserved}, {hostingv1alpha1.HoldPolicyName(g.Name), g.Held},
		} {
			for i := len(policies) - 1; i >= 0 && policy.exists; i-- { // a binding before its policy
				if err := s.remove(ctx, admission.WithResource(policies[i]), "", policy.name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *session) removeLabels(ctx context.Context, found *installation) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, hostingv1alpha1.HostedLabel)
	for _, g := range found.groups {
		for _, name := range g.Labelled {
			if _, err := s.Metadata.Resource(definitionsResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("remove the label of the definition %s: %w", name, err)
			}
			s.print("%s/%s unlabeled", kindOf(definitionsResource), name)
		}
	}
	return nil
}

// stopAnnex scales annex to zero, and returns when no replica runs the controllers.
func (s *session) stopAnnex(ctx context.Context, service maincluster.Service, timeout time.Duration) error {
	scaled := 0
	for _, name := range []string{"statefulsets", "deployments"} {
		resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: name}
		objects := s.Metadata.Resource(resource).Namespace(service.Namespace)
		list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=annex"})
		if err != nil {
			return fmt.Errorf("stop annex: list its %s: %w", name, err)
		}
		for _, of := range list.Items {
			if _, err := objects.Patch(ctx, of.Name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("stop annex: scale %s %s: %w", kindOf(resource), of.Name, err)
			}
			s.print("%s/%s scaled to 0", kindOf(resource), of.Name)
			scaled++
		}
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
	err := wait.PollUntilContextCancel(ctx, s.pollInterval, true, func(ctx context.Context) (bool, error) {
		lease, err := s.Kube.CoordinationV1().Leases(service.Namespace).Get(ctx, service.Lease(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read Lease %s: %w", service.Lease(), err)
		}
		running := s.holderOf(lease)
		if running != "" && running != holder {
			s.print("Waiting until %s has stopped.", running)
		}
		holder = running
		return holder == "", nil
	})
	if err != nil && ctx.Err() != nil && holder != "" {
		err = fmt.Errorf("%s holds Lease %s: %w", holder, service.Lease(), err)
	}
	if err != nil {
		return fmt.Errorf("wait until annex has stopped: %w", err)
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

func (s *session) published(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	list, err := s.APIServices.List(ctx, metav1.ListOptions{LabelSelector: hostingv1alpha1.PublishedByLabel})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices of annex: %w", err)
	}
	return list.Items, nil
}

// removeAPIService deletes the APIService of annex's own group, if no other leads to annex.
func (s *session) removeAPIService(ctx context.Context, found *installation) error {
	list, err := s.published(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if of := &list[i]; of.Spec.Group != hostingv1alpha1.GroupName {
			return fmt.Errorf("annex published %s while it stopped: start it, with its replicas in namespace %s, and type it again", of.Name, found.service.Namespace)
		}
	}
	return s.remove(ctx, apiServicesResource, "", found.Hosting.Name)
}

// removeObjects deletes the roles with rights for groups, and what annex has written to its namespace.
func (s *session) removeObjects(ctx context.Context, found *installation) error {
	for _, of := range []struct {
		schema.GroupVersionResource
		namespace, prefix, labels string
	}{
		{clusterRolesResource, "", hostingv1alpha1.HostedRoleName(""), hostingv1alpha1.AggregateLabel},
		{bindingsResource, annexNamespace, hostingv1alpha1.HostedRoleName(""), ""},
		{rolesResource, annexNamespace, hostingv1alpha1.HostedRoleName(""), ""},
		{core.WithResource("configmaps"), annexNamespace, maincopy.RevisionPrefix, ""},
	} {
		if err := s.removeAll(ctx, of.GroupVersionResource, of.namespace, of.prefix, of.labels); err != nil {
			return err
		}
	}
	if err := s.remove(ctx, core.WithResource("configmaps"), found.service.Namespace, servingca.SecretName(found.service.Name)); err != nil {
		return err
	}
	if err := s.remove(ctx, leasesResource, found.service.Namespace, found.service.Lease()); err != nil {
		return err
	}
	return s.remove(ctx, core.WithResource("secrets"), found.service.Namespace, servingca.SecretName(found.service.Name))
}

func (s *session) printNext(ctx context.Context, service maincluster.Service) {
	s.print("\nannex is uninstalled. This deletes its manifests, and its volume, if it\nhas one:")
	in, err := s.Kube.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if err != nil || in.Annotations[helmRelease] == "" {
		s.print("  kubectl delete -k artifacts/deploy/base --ignore-not-found")
		return
	}
	s.print("  helm uninstall %s -n %s", in.Annotations[helmRelease], service.Namespace)
	s.print("  kubectl delete namespace %s", service.Namespace)
}
