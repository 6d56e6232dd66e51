// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annextest

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// Where annex is installed, as the manifests say.
const (
	Namespace      = "annex-system"
	ServiceAccount = "annex"
	ServiceName    = "annex"
)

const (
	pollInterval = 50 * time.Millisecond
	// patience is how long a wait may take on a busy machine.
	patience = time.Minute
)

// Installation is what one annex, of one or more replicas, has in a main cluster.
type Installation struct {
	Cluster *maincluster.Cluster
	// MainKubeconfig logs in to the main cluster as annex's service account.
	MainKubeconfig string
	// Balancer is what the Service in the main cluster leads to. The replicas that
	// run are its endpoints.
	Balancer *maincluster.LoadBalancer
}

// Install prepares a main cluster for annex: namespace, service account, RBAC, and
// a Service that leads to balancer. A cluster can be prepared again, for an annex
// that takes the place of an earlier one.
func Install(ctx context.Context, cluster *maincluster.Cluster, balancer *maincluster.LoadBalancer) (*Installation, error) {
	if err := applyManifests(ctx, cluster.Config, "namespace.yaml", "serviceaccount.yaml", "rbac.yaml"); err != nil {
		return nil, err
	}
	if err := cluster.ExternalNameService(ctx, Namespace, ServiceName); err != nil {
		return nil, err
	}
	mainKubeconfig, err := cluster.ServiceAccountKubeconfig(ctx, Namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	return &Installation{Cluster: cluster, MainKubeconfig: mainKubeconfig, Balancer: balancer}, nil
}

// Flags make `annex serve` a replica of this installation.
func (i *Installation) Flags() []string {
	return []string{
		"--main-kubeconfig=" + i.MainKubeconfig,
		fmt.Sprintf("--publish-service=%s/%s:%d", Namespace, ServiceName, i.Balancer.Port()),
	}
}

// AllowGroup lets annex look for objects of a group in the main cluster, which it
// has to before it takes the group over, as rbac.yaml says. It returns when the
// main cluster has added that to annex's rights, so the cluster has to run the
// controller that does.
func (i *Installation) AllowGroup(ctx context.Context, group string) error {
	mainClient, err := kubernetes.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-hosted-" + group, Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}}},
	}
	_, err = mainClient.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let annex look for objects of group %s in the main cluster: %w", group, err)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               fmt.Sprintf("system:serviceaccount:%s:%s", Namespace, ServiceAccount),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: group, Resource: "*", Verb: "list"},
	}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		answer, err := mainClient.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("wait until annex may look for objects of group %s in the main cluster: %w", group, err)
	}
	return nil
}

// Uninstall takes back what annex has published, which it never does by itself.
// The main cluster serves the groups again that it has definitions of. No replica
// may run.
func (i *Installation) Uninstall(ctx context.Context) error {
	mainAggregator, err := aggregatorclient.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	ours := metav1.ListOptions{LabelSelector: hostingv1alpha1.PublishedByLabel + "=" + hostingv1alpha1.PublishedBy(Namespace, ServiceName)}
	if err := mainAggregator.ApiregistrationV1().APIServices().DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
		return fmt.Errorf("delete the APIServices that annex has published in the main cluster: %w", err)
	}
	return nil
}

// WaitHosting waits until the main cluster proxies hosting.annex.dev to annex,
// which is what annex publishes first.
func (i *Installation) WaitHosting(ctx context.Context) error {
	return i.WaitPublished(ctx, hostingv1alpha1.SchemeGroupVersion.Group, hostingv1alpha1.SchemeGroupVersion.Version)
}

// WaitPublished waits until the main cluster proxies requests for a group and
// version to annex: its APIService names annex's Service and is available.
func (i *Installation) WaitPublished(ctx context.Context, group, version string) error {
	mainAggregator, err := aggregatorclient.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	name := version + "." + group
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := "it was not looked at"
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		found, getErr := mainAggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if getErr != nil {
			last = getErr.Error()
		} else {
			last = describe(found)
		}
		return getErr == nil && i.leadsHere(found) && available(found), nil
	})
	if err != nil {
		return fmt.Errorf("APIService %s of the main cluster does not lead to annex (%s): %w", name, last, err)
	}
	return nil
}

// leadsHere tells an APIService of this annex from that of an earlier one.
func (i *Installation) leadsHere(service *apiregistrationv1.APIService) bool {
	target := service.Spec.Service
	return target != nil && target.Namespace == Namespace && target.Name == ServiceName &&
		target.Port != nil && int(*target.Port) == i.Balancer.Port()
}

func available(service *apiregistrationv1.APIService) bool {
	for _, condition := range service.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			return condition.Status == apiregistrationv1.ConditionTrue
		}
	}
	return false
}

func describe(service *apiregistrationv1.APIService) string {
	if service.Spec.Service == nil {
		return "it is served by the main cluster itself"
	}
	words := []string{fmt.Sprintf("it leads to %s/%s", service.Spec.Service.Namespace, service.Spec.Service.Name)}
	if port := service.Spec.Service.Port; port != nil {
		words[0] += fmt.Sprintf(":%d", *port)
	}
	for _, condition := range service.Status.Conditions {
		words = append(words, fmt.Sprintf("%s=%s: %s", condition.Type, condition.Status, condition.Message))
	}
	return strings.Join(words, ", ")
}
