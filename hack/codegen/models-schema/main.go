// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command models-schema prints the generated OpenAPI definitions as one OpenAPI v2
// document, from which the generator of apply configurations reads list and map keys.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/generated/openapi"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(document()); err != nil {
		fmt.Fprintf(os.Stderr, "models-schema: writing the OpenAPI document: %v\n", err)
		os.Exit(1)
	}
}

func document() *spec.Swagger {
	definitions := spec.Definitions{}
	for name, definition := range openapi.GetOpenAPIDefinitions(reference) {
		definitions[name] = v2Schema(definition)
	}
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "annex", Version: "unversioned"}},
		Definitions: definitions,
	}}
}

func reference(name string) spec.Ref {
	return spec.MustCreateRef("#/definitions/" + name)
}

// v2Schema returns the OpenAPI v2 form of a definition. Types that look
// different in v3, such as IntOrString, carry it as an extension.
func v2Schema(definition common.OpenAPIDefinition) spec.Schema {
	if v2, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
		return v2
	}
	return definition.Schema
}
