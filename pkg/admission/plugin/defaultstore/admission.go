// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defaultstore keeps the Store `default` from being deleted: it
// describes the etcd that annex itself runs on.
package defaultstore

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/apis/hosting"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "DefaultStore"

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin refuses deletion of the Store `default`.
type Plugin struct {
	*admission.Handler
}

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin; it needs no initialization.
func New() *Plugin { return &Plugin{admission.NewHandler(admission.Delete)} }

// Validate refuses to delete the Store `default`, alone or in a collection. A
// collection is checked object by object: then the name is that of the object.
func (p *Plugin) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != hosting.Resource("stores") || attributes.GetSubresource() != "" {
		return nil
	}
	name := attributes.GetName()
	if old := attributes.GetOldObject(); old != nil {
		accessor, err := meta.Accessor(old)
		if err != nil {
			return admission.NewForbidden(attributes, fmt.Errorf("read the name of the Store: %w", err))
		}
		name = accessor.GetName()
	}
	if name != hosting.DefaultStoreName {
		return nil
	}
	return admission.NewForbidden(attributes, fmt.Errorf("the Store %q holds annex's own objects and always exists", hosting.DefaultStoreName))
}
