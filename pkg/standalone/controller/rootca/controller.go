// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca maintains a ConfigMap "kube-root-ca.crt" in every namespace, with the CA
// certificates of annex. Clients and test suites for Kubernetes wait for it.
package rootca

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// ControllerName names the controller in logs and metrics.
const ControllerName = "rootca"

// The ConfigMap and its one key are named as in Kubernetes.
const (
	configMapName = "kube-root-ca.crt"
	caKey         = "ca.crt"
)

const descriptionAnnotation = "kubernetes.io/description"

// Source has the PEM certificates that annex is verified with, and notifies of changes.
type Source interface {
	CABundle() []byte
	AddListener(listener func())
}

// Config holds what the controller depends on.
type Config struct {
	Annex      kubernetes.Interface
	Namespaces cache.SharedIndexInformer
	CA         Source
}

// Controller maintains ConfigMaps.
type Controller struct {
	*framework.Queue[string]
	annexConfigMaps corev1client.ConfigMapsGetter
	namespaces      corev1listers.NamespaceLister
	configMaps      corev1listers.ConfigMapLister
	caBundle        func() []byte
	// informer watches only ConfigMaps of this name.
	informer cache.SharedIndexInformer
}

// New returns a controller that adds a handler to the informer of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		annexConfigMaps: config.Annex.CoreV1(),
		namespaces:      corev1listers.NewNamespaceLister(config.Namespaces.GetIndexer()),
		caBundle:        config.CA.CABundle,
		informer: coreinformers.NewFilteredConfigMapInformer(config.Annex, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			func(options *metav1.ListOptions) {
				options.FieldSelector = fields.OneTermEqualSelector("metadata.name", configMapName).String()
			}),
	}
	c.configMaps = corev1listers.NewConfigMapLister(c.informer.GetIndexer())
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: c.reconcile})
	config.CA.AddListener(c.enqueueAll)
	changed := framework.Every(func(configMap *corev1.ConfigMap) { c.Add(configMap.Namespace) })
	changed.Added = nil
	return c, c.Watch(
		framework.Source{Name: "namespaces", Informer: config.Namespaces, Handler: framework.Every(func(namespace *corev1.Namespace) { c.Add(namespace.Name) })},
		framework.Source{Name: "config maps", Informer: c.informer, Handler: changed},
	)
}

// Run maintains ConfigMaps until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	var informing sync.WaitGroup
	defer informing.Wait()
	informing.Go(func() { c.informer.RunWithContext(ctx) })
	c.Queue.Run(ctx, workers)
}

func (c *Controller) enqueueAll() {
	namespaces, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return // reading memory never fails
	}
	for _, namespace := range namespaces {
		c.Add(namespace.Name)
	}
}

func (c *Controller) reconcile(ctx context.Context, name string) (framework.Result, error) {
	namespace, err := framework.IgnoreNotFound(c.namespaces.Get(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	if namespace == nil || namespace.DeletionTimestamp != nil {
		return framework.Result{}, nil
	}
	found, err := framework.IgnoreNotFound(c.configMaps.ConfigMaps(name).Get(configMapName))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read the config map %s/%s: %w", name, configMapName, err)
	}
	if err := c.write(ctx, name, found); err != nil && !isSettled(err) {
		return framework.Result{}, fmt.Errorf("write the config map %s/%s: %w", name, configMapName, err)
	}
	return framework.Result{}, nil
}

func (c *Controller) write(ctx context.Context, namespace string, found *corev1.ConfigMap) error {
	data := map[string]string{caKey: string(c.caBundle())}
	client := c.annexConfigMaps.ConfigMaps(namespace)
	if found == nil {
		made := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: configMapName, Namespace: namespace,
				Annotations: map[string]string{descriptionAnnotation: "The certificate authorities that clients verify annex with."},
			},
			Data: data,
		}
		_, err := client.Create(ctx, made, metav1.CreateOptions{})
		return err
	}
	if maps.Equal(found.Data, data) && len(found.BinaryData) == 0 {
		return nil
	}
	corrected := found.DeepCopy()
	corrected.Data, corrected.BinaryData = data, nil
	_, err := client.Update(ctx, corrected, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) {
		// It is immutable. Its deletion causes an event, and it is created again.
		return client.Delete(ctx, configMapName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(found.UID)}})
	}
	return err
}

// isSettled reports whether the caches lagged: the missing changes will cause events.
func isSettled(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
