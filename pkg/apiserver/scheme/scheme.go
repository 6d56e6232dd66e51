// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheme holds the one scheme of the compiled-in resources that annex
// serves. Custom resource definitions and APIServices have their upstream
// schemes.
package scheme

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	admissionregistrationinstall "github.com/annex-dev/annex/pkg/apis/admissionregistration/install"
	authenticationinstall "github.com/annex-dev/annex/pkg/apis/authentication/install"
	authorizationinstall "github.com/annex-dev/annex/pkg/apis/authorization/install"
	coordinationinstall "github.com/annex-dev/annex/pkg/apis/coordination/install"
	coreinstall "github.com/annex-dev/annex/pkg/apis/core/install"
	eventsinstall "github.com/annex-dev/annex/pkg/apis/events/install"
	flowcontrolinstall "github.com/annex-dev/annex/pkg/apis/flowcontrol/install"
	hostinginstall "github.com/annex-dev/annex/pkg/apis/hosting/install"
	rbacinstall "github.com/annex-dev/annex/pkg/apis/rbac/install"
)

var (
	// Scheme contains every compiled-in kind that annex serves.
	Scheme = runtime.NewScheme()

	// Codecs encode and decode the kinds in Scheme.
	Codecs = serializer.NewCodecFactory(Scheme)

	// ParameterCodec decodes query parameters into the options in Scheme.
	ParameterCodec = runtime.NewParameterCodec(Scheme)
)

func init() {
	install(Scheme)
}

// install adds every group to scheme, and the kinds without a group: the server returns
// them for any requested group.
func install(scheme *runtime.Scheme) {
	coreinstall.Install(scheme)
	authenticationinstall.Install(scheme)
	authorizationinstall.Install(scheme)
	coordinationinstall.Install(scheme)
	eventsinstall.Install(scheme)
	rbacinstall.Install(scheme)
	admissionregistrationinstall.Install(scheme)
	flowcontrolinstall.Install(scheme)
	hostinginstall.Install(scheme)

	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
}
