// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// What every namespace has is named as in Kubernetes.
const (
	defaultServiceAccount = "default"
	rootCAConfigMap       = "kube-root-ca.crt"
	rootCAKey             = "ca.crt"
	descriptionAnnotation = "kubernetes.io/description"
)

// namespaceDefaults creates in every namespace the service account "default" and, with
// the CA certificates of annex, the ConfigMap "kube-root-ca.crt". Clients, charts and test
// suites for Kubernetes expect both.
type namespaceDefaults struct {
	*framework.Queue[string]
	annex           corev1client.CoreV1Interface
	namespaces      corev1listers.NamespaceLister
	serviceAccounts corev1listers.ServiceAccountLister
	// ca is nil if annex does not know it. Then there are no ConfigMaps.
	ca framework.CABundleSource
	// configMaps has only ConfigMaps of this name.
	configMaps cache.SharedIndexInformer
}

func newNamespaceDefaults(annex kubernetes.Interface, namespaces, serviceAccounts cache.SharedIndexInformer, ca framework.CABundleSource) (*namespaceDefaults, error) {
	c := &namespaceDefaults{
		annex:           annex.CoreV1(),
		namespaces:      corev1listers.NewNamespaceLister(namespaces.GetIndexer()),
		serviceAccounts: corev1listers.NewServiceAccountLister(serviceAccounts.GetIndexer()),
		ca:              ca,
	}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: namespaceDefaultsName, Reconcile: c.reconcile})
	err := c.Watch(
		framework.Source{Name: "namespaces", Informer: namespaces, Handler: framework.Every(func(namespace *corev1.Namespace) { c.Add(namespace.Name) })},
		framework.Source{Name: "service accounts", Informer: serviceAccounts, Handler: framework.Handler[*corev1.ServiceAccount]{
			Deleted: func(serviceAccount *corev1.ServiceAccount) { c.Add(serviceAccount.Namespace) },
		}},
	)
	if err != nil || ca == nil {
		return c, err
	}
	c.configMaps = coreinformers.NewFilteredConfigMapInformer(annex, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", rootCAConfigMap).String()
		})
	changed := framework.Every(func(configMap *corev1.ConfigMap) { c.Add(configMap.Namespace) })
	changed.Added = nil
	ca.AddListener(func() {
		for _, name := range namespaces.GetStore().ListKeys() {
			c.Add(name)
		}
	})
	return c, c.Watch(framework.Source{Name: "config maps", Informer: c.configMaps, Handler: changed})
}

// Run works until ctx is done.
func (c *namespaceDefaults) Run(ctx context.Context, workers int) {
	var informing sync.WaitGroup
	defer informing.Wait()
	if c.configMaps != nil {
		informing.Go(func() { c.configMaps.RunWithContext(ctx) })
	}
	c.Queue.Run(ctx, workers)
}

func (c *namespaceDefaults) reconcile(ctx context.Context, name string) (framework.Result, error) {
	namespace, err := framework.IgnoreNotFound(c.namespaces.Get(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	if namespace == nil || namespace.DeletionTimestamp != nil {
		return framework.Result{}, nil
	}
	var errs []error
	if err := c.ensureServiceAccount(ctx, name); err != nil && !isSettled(err) {
		errs = append(errs, fmt.Errorf("create the service account %s/%s: %w", name, defaultServiceAccount, err))
	}
	if c.ca != nil {
		if err := c.ensureConfigMap(ctx, name); err != nil && !isSettled(err) {
			errs = append(errs, fmt.Errorf("write the config map %s/%s: %w", name, rootCAConfigMap, err))
		}
	}
	return framework.Result{}, errors.Join(errs...)
}

func (c *namespaceDefaults) ensureServiceAccount(ctx context.Context, namespace string) error {
	if _, err := c.serviceAccounts.ServiceAccounts(namespace).Get(defaultServiceAccount); !apierrors.IsNotFound(err) {
		return err
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultServiceAccount}}
	_, err := c.annex.ServiceAccounts(namespace).Create(ctx, serviceAccount, metav1.CreateOptions{})
	return err
}

func (c *namespaceDefaults) ensureConfigMap(ctx context.Context, namespace string) error {
	found, err := framework.IgnoreNotFound(corev1listers.NewConfigMapLister(c.configMaps.GetIndexer()).ConfigMaps(namespace).Get(rootCAConfigMap))
	if err != nil {
		return err
	}
	data := map[string]string{rootCAKey: string(c.ca.CABundle())}
	client := c.annex.ConfigMaps(namespace)
	if found == nil {
		_, err := client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: rootCAConfigMap, Namespace: namespace,
				Annotations: map[string]string{descriptionAnnotation: "The certificate authorities that clients verify annex with."},
			},
			Data: data,
		}, metav1.CreateOptions{})
		return err
	}
	if maps.Equal(found.Data, data) && len(found.BinaryData) == 0 {
		return nil
	}
	corrected := found.DeepCopy()
	corrected.Data, corrected.BinaryData = data, nil
	_, err = client.Update(ctx, corrected, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) {
		// It is immutable. Its deletion causes an event, and it is created again.
		return client.Delete(ctx, rootCAConfigMap, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(found.UID)}})
	}
	return err
}

// isSettled reports whether a write failed because the caches lagged: the missing changes
// cause events.
func isSettled(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
