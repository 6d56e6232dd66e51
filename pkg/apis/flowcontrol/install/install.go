// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group flowcontrol.apiserver.k8s.io to a scheme.
package install

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	annexflowcontrolv1 "github.com/annex-dev/annex/pkg/apis/flowcontrol/v1"
)

// Install registers the group. One Go type is v1 and the internal type.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(annexflowcontrolv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: flowcontrolv1.GroupName, Version: runtime.APIVersionInternal},
		&flowcontrolv1.FlowSchema{}, &flowcontrolv1.FlowSchemaList{},
		&flowcontrolv1.PriorityLevelConfiguration{}, &flowcontrolv1.PriorityLevelConfigurationList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(flowcontrolv1.SchemeGroupVersion))
}
