// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.github.annex-dev.annex.pkg.apis.hosting.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:protobuf-gen=package
// +groupName=hosting.annex.dev

// Package v1alpha1 is the first version of annex's own API group: Store, an etcd,
// HostedResource, a resource that annex stores, Migration, a move of a resource to another
// Store, and InjectionProfile, containers for the pod templates of custom resources. The server
// uses these types internally too.
package v1alpha1
