// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// ValidateSecret checks a new secret.
func ValidateSecret(secret *corev1.Secret) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&secret.ObjectMeta, true, apivalidation.NameIsDNSSubdomain)
	size := 0
	for _, key := range sortedKeys(secret.Data) {
		errs = append(errs, validateDataKey(key, dataPath)...)
		size += len(secret.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(dataPath, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretContent(secret)...)
}

// ValidateSecretUpdate checks an update of a secret.
func ValidateSecretUpdate(newSecret, oldSecret *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(newSecret.Type, oldSecret.Type, field.NewPath("type"))
	if isTrue(oldSecret.Immutable) {
		errs = append(errs, forbidUnless(isTrue(newSecret.Immutable), immutablePath)...)
		errs = append(errs, forbidUnless(equality.Semantic.DeepEqual(newSecret.Data, oldSecret.Data), dataPath)...)
	}
	return append(errs, ValidateSecret(newSecret)...)
}

// validateSecretContent validates the content that the types of Kubernetes require.
func validateSecretContent(secret *corev1.Secret) field.ErrorList {
	switch secret.Type {
	case corev1.SecretTypeServiceAccountToken:
		// A controller adds the token later.
		if secret.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata").Child("annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return requireJSON(secret, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return requireJSON(secret, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		// Either may be absent, and both may be empty.
		if _, ok := secret.Data[corev1.BasicAuthUsernameKey]; ok {
			return nil
		}
		if _, ok := secret.Data[corev1.BasicAuthPasswordKey]; ok {
			return nil
		}
		return requireKeys(secret, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
	case corev1.SecretTypeSSHAuth:
		if len(secret.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(dataPath.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return requireKeys(secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}

func requireKeys(secret *corev1.Secret, keys ...string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		if _, ok := secret.Data[key]; !ok {
			errs = append(errs, field.Required(dataPath.Key(key), ""))
		}
	}
	return errs
}

func requireJSON(secret *corev1.Secret, key string) field.ErrorList {
	if errs := requireKeys(secret, key); len(errs) > 0 {
		return errs
	}
	if err := json.Unmarshal(secret.Data[key], &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(dataPath.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}
