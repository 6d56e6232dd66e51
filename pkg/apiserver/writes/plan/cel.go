// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// celRules are the validation rules of a schema, x-kubernetes-validations.
type celRules struct {
	schema    *structuralschema.Structural
	validator *cel.Validator
}

// newCELRules returns nil if a schema has no rules.
func newCELRules(schema *apiextensionsv1.JSONSchemaProps) (*celRules, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &internal, nil); err != nil {
		return nil, fmt.Errorf("convert a schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, fmt.Errorf("read a schema: %w", err)
	}
	validator := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	if validator == nil {
		return nil, nil
	}
	return &celRules{structural, validator}, nil
}

// validate returns an error unless all rules accept an object, which is new if before is nil. Nothing is ratcheted.
func (r *celRules) validate(ctx context.Context, planned []byte, before members) error {
	if r == nil {
		return nil
	}
	var updated map[string]any
	var stored any
	if err := utiljson.Unmarshal(planned, &updated); err != nil {
		return fmt.Errorf("decode the planned object: %w", err)
	}
	if before != nil {
		if err := utiljson.Unmarshal(before.encode(), &stored); err != nil {
			return fmt.Errorf("decode the stored object: %w", err)
		}
	}
	if errs, _ := r.validator.Validate(ctx, nil, r.schema, updated, stored, celconfig.RuntimeCELCostBudget); len(errs) > 0 {
		return errSchema
	}
	return nil
}
