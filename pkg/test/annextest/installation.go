// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annextest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// The names in the manifests.
const (
	Namespace      = "annex-system"
	ServiceAccount = "annex"
	ServiceName    = "annex"
)

const (
	pollInterval = 200 * time.Millisecond
	timeout      = 2 * time.Minute // long, for busy machines
	// publishTimeout is longer: a busy machine undoes switches of a group, and the pauses between them double.
	publishTimeout = 10 * time.Minute
)

// Installation is one annex, of one or more replicas, in a main cluster.
type Installation struct {
	Cluster *maincluster.Cluster
	// MainKubeconfig logs in to the main cluster as annex's service account.
	MainKubeconfig string
	// Balancer is the target of the Service in the main cluster. Running replicas are its
	// endpoints.
	Balancer *maincluster.LoadBalancer
}

// Install creates namespace, service account, RBAC and a Service that targets the balancer. It
// can be called again, for an annex that replaces an earlier one.
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

// AllowGroup grants annex the rights to move a group, as `annex move` does. It returns once the permission is effective, so the cluster
// must run the controller that aggregates ClusterRoles.
func (i *Installation) AllowGroup(ctx context.Context, group string) error {
	mainClient, err := kubernetes.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-hosted-" + group, Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"update", "patch"}},
			{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
				Verbs: []string{"get", "create", "update", "delete"},
			},
		},
	}
	_, err = mainClient.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("allow annex to move group %s: %w", group, err)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               fmt.Sprintf("system:serviceaccount:%s:%s", Namespace, ServiceAccount),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: group, Resource: "*", Verb: "list"},
	}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		answer, err := mainClient.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("wait until annex may move group %s: %w", group, err)
	}
	return nil
}

// Uninstall deletes annex's APIServices and what freezes groups, which annex never does itself. The main
// cluster then serves the groups of its own CRDs again. No replica may run.
func (i *Installation) Uninstall(ctx context.Context) error {
	mainAggregator, err := aggregatorclient.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	ours := metav1.ListOptions{LabelSelector: hostingv1alpha1.PublishedByLabel + "=" + hostingv1alpha1.PublishedBy(Namespace, ServiceName)}
	if err := mainAggregator.ApiregistrationV1().APIServices().DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
		return fmt.Errorf("delete the APIServices that annex has published in the main cluster: %w", err)
	}
	mainClient, err := kubernetes.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	admission, frozen := mainClient.AdmissionregistrationV1(), metav1.ListOptions{LabelSelector: hostingv1alpha1.FrozenGroupLabel}
	if err := errors.Join(
		admission.ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, frozen),
		admission.ValidatingAdmissionPolicies().DeleteCollection(ctx, metav1.DeleteOptions{}, frozen),
	); err != nil {
		return fmt.Errorf("delete the policies that freeze groups in the main cluster: %w", err)
	}
	return nil
}

// DeleteDefinitions deletes all CRDs of the main cluster and their objects, and returns when they are gone. It
// waits for no finalizer, because kube-apiserver may take minutes to delete the objects. No replica may run,
// and Uninstall comes first.
func DeleteDefinitions(ctx context.Context, cluster *maincluster.Cluster) error {
	mainClient, err := apiextensionsclient.NewForConfig(cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	definitions := mainClient.ApiextensionsV1().CustomResourceDefinitions()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var left []string
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		list, err := definitions.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		left = nil
		for _, found := range list.Items {
			left = append(left, fmt.Sprint(found.Name, found.Finalizers, found.Status.Conditions))
			if found.DeletionTimestamp == nil {
				err = definitions.Delete(ctx, found.Name, metav1.DeleteOptions{})
			} else if err = cluster.DeleteEtcdKeys(ctx, "/registry/"+found.Spec.Group+"/"); err == nil {
				found.Finalizers = nil
				_, err = definitions.Update(ctx, &found, metav1.UpdateOptions{})
			}
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("delete all definitions of the main cluster, left are %q: %w", left, err)
	}
	return nil
}

// WaitHosting waits until the main cluster proxies hosting.annex.dev, which annex publishes
// first.
func (i *Installation) WaitHosting(ctx context.Context) error {
	return i.WaitPublished(ctx, hostingv1alpha1.SchemeGroupVersion.Group, hostingv1alpha1.SchemeGroupVersion.Version)
}

// WaitPublished waits until the main cluster proxies requests for a group version to annex, and no Migration may
// give the group back. kube-apiserver proxies them shortly after the APIService is available: until then it serves the
// CRDs that it has itself.
func (i *Installation) WaitPublished(ctx context.Context, group, version string) error {
	mainAggregator, err := aggregatorclient.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	hosting, err := annexclient.NewForConfig(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	mainHTTP, err := restclient.HTTPClientFor(i.Cluster.Config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	name := version + "." + group
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var last error
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		found, err := mainAggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (!i.namesService(found) || !apiregistrationhelper.IsAPIServiceConditionTrue(found, apiregistrationv1.Available)) {
			err = errors.New(describe(found))
		}
		if err != nil {
			if failed := checkNotFailed(ctx, hosting, group); failed != nil {
				return false, failed
			}
		} else if err = checkMoved(ctx, hosting, group); err == nil {
			err = i.checkProxied(ctx, mainHTTP, group, version)
		}
		if err == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the main cluster proxies to annex for APIService %s: %w", name, errors.Join(err, last))
	}
	return nil
}

// checkNotFailed fails if the last Migration of a group has failed: annex does not try again for a day.
func checkNotFailed(ctx context.Context, hosting annexclient.Interface, group string) error {
	migrations, err := migrationsOf(ctx, hosting, group)
	if err == nil && len(migrations) > 0 { // an error may mean that they are not served yet
		last := slices.MaxFunc(migrations, func(a, b hostingv1alpha1.Migration) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		if last.Status.Phase == hostingv1alpha1.MigrationFailed {
			return fmt.Errorf("migration %s failed: %+v", last.Name, last.Status.Conditions)
		}
	}
	return nil
}

// checkMoved fails if a Migration of a group has not switched it for good: what is written to the main cluster is then
// its own.
func checkMoved(ctx context.Context, hosting annexclient.Interface, group string) error {
	migrations, err := migrationsOf(ctx, hosting, group)
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if !m.Status.Phase.Finished() && m.Status.Phase != hostingv1alpha1.MigrationObserving {
			return fmt.Errorf("migration %s is %s", m.Name, m.Status.Phase)
		}
	}
	return nil
}

func migrationsOf(ctx context.Context, hosting annexclient.Interface, group string) ([]hostingv1alpha1.Migration, error) {
	migrations, err := hosting.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(migrations.Items, func(m hostingv1alpha1.Migration) bool { return m.Spec.Group != group }), nil
}

// checkProxied fails unless annex responds to a request to the main cluster.
func (i *Installation) checkProxied(ctx context.Context, mainHTTP *http.Client, group, version string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, i.Cluster.URL+"/apis/"+group+"/"+version, nil)
	if err != nil {
		return err
	}
	response, err := mainHTTP.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be reused
	by := response.Header.Get(hostingv1alpha1.PublishedByHeader)
	if response.StatusCode != http.StatusOK || by != hostingv1alpha1.PublishedBy(Namespace, ServiceName) {
		return fmt.Errorf("the main cluster responds %s, published by %q", response.Status, by)
	}
	return nil
}

// namesService reports whether an APIService is of this installation, not an earlier one.
func (i *Installation) namesService(service *apiregistrationv1.APIService) bool {
	target := service.Spec.Service
	return target != nil && target.Namespace == Namespace && target.Name == ServiceName &&
		target.Port != nil && int(*target.Port) == i.Balancer.Port()
}

func describe(service *apiregistrationv1.APIService) string {
	if service.Spec.Service == nil {
		return "served by the main cluster itself"
	}
	words := []string{fmt.Sprintf("served by %s/%s", service.Spec.Service.Namespace, service.Spec.Service.Name)}
	if port := service.Spec.Service.Port; port != nil {
		words[0] += fmt.Sprintf(":%d", *port)
	}
	for _, condition := range service.Status.Conditions {
		words = append(words, fmt.Sprintf("%s=%s: %s", condition.Type, condition.Status, condition.Message))
	}
	return strings.Join(words, ", ")
}
