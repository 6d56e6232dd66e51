// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
)

const (
	listLikeName = "ListLikeObjects"

	itemsField     = "items"
	listLikeReason = "clients and servers take an object with an array of this name at its top for a list: give the field another name, or move it below spec"
)

// listLike refuses custom objects that have an array "items" at their top, and warns of definitions of
// such objects. Upstream's handlers take them for lists and answer a write with an error after it is done.
type listLike struct{ *admission.Handler }

var _ admission.ValidationInterface = listLike{}

func newListLike() listLike {
	return listLike{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface. Objects that have the array already, because they
// are from another server, may be written: their finalizers must be removable.
func (listLike) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	switch object := attributes.GetObject().(type) {
	case *unstructured.Unstructured:
		old, _ := attributes.GetOldObject().(*unstructured.Unstructured)
		if !object.IsList() || old != nil && old.IsList() {
			return nil
		}
		return apierrors.NewInvalid(attributes.GetKind().GroupKind(), attributes.GetName(), field.ErrorList{field.Forbidden(field.NewPath(itemsField), listLikeReason)})
	case *apiextensions.CustomResourceDefinition:
		for i := range object.Spec.Versions {
			schema, err := apiextensions.GetSchemaForVersion(object, object.Spec.Versions[i].Name)
			if err == nil && schema != nil && schema.OpenAPIV3Schema != nil && schema.OpenAPIV3Schema.Properties[itemsField].Type == "array" {
				warning.AddWarning(ctx, "", "objects with the field items will be refused: "+listLikeReason)
				return nil
			}
		}
	}
	return nil
}
