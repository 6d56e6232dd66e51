// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// NewScope returns the scope of upstream's request handlers for a version. The caller adds what
// only its handlers need.
func NewScope(from watchcache.Endpoint, serializer runtime.NegotiatedSerializer) (*handlers.RequestScope, error) {
	kind := from.Resource.Kind
	converter, err := fieldLabels(from.Definition)
	if err != nil {
		return nil, fmt.Errorf("read the selectable fields of %s: %w", from.Definition.Name, err)
	}
	scope := &handlers.RequestScope{
		Namer:            handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: isClusterScoped(from)},
		Serializer:       serializer,
		Convertor:        converter,
		Resource:         kind.GroupVersion().WithResource(from.Definition.Spec.Names.Plural),
		Kind:             kind,
		HubGroupVersion:  kind.GroupVersion(),
		MetaGroupVersion: metav1.SchemeGroupVersion,
	}
	for _, info := range serializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			scope.StandardSerializers = append(scope.StandardSerializers, info)
		}
	}
	return scope, nil
}

func isClusterScoped(from watchcache.Endpoint) bool {
	return from.Definition.Spec.Scope == apiextensionsv1.ClusterScoped
}

// fieldLabels returns upstream's converter of custom resources, which knows the field labels.
// They do not depend on the conversion, and nothing is converted here.
func fieldLabels(definition *apiextensionsv1.CustomResourceDefinition) (runtime.ObjectConvertor, error) {
	unconverted := *definition
	unconverted.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	factory, err := conversion.NewCRConverterFactory(nil, nil)
	if err != nil {
		return nil, err
	}
	converter, _, err := factory.NewConverter(&unconverted)
	return converter, err
}
