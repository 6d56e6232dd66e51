// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// publish writes the bundle to a ConfigMap with the Secret's name, for clients that verify annex and must not read its
// private keys, such as Prometheus. annex does not read it.
func (s *Shared) publish(ctx context.Context) error {
	configMaps := s.config.Main.CoreV1().ConfigMaps(s.config.Namespace)
	bundle := map[string]string{BundleKey: string(s.CABundle())}
	found, err := configMaps.Get(ctx, SecretName(s.config.Name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.meta(), Data: bundle}, metav1.CreateOptions{})
	case err == nil && !equality.Semantic.DeepEqual(found.Data, bundle):
		found = found.DeepCopy()
		found.Data = bundle
		_, err = configMaps.Update(ctx, found, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // another replica wrote it
	}
	if err != nil {
		return fmt.Errorf("publish the CA bundle in ConfigMap %s/%s: %w", s.config.Namespace, SecretName(s.config.Name), err)
	}
	return nil
}

// meta returns the metadata of the Secret and of the ConfigMap.
func (s *Shared) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.config.Namespace, Name: SecretName(s.config.Name), Labels: map[string]string{"app.kubernetes.io/managed-by": "annex"},
	}
}
