// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	openapihandler "k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/storage/layer/compression"
)

// definition has what a CustomResourceDefinition adds to the document, by format.
type definition struct {
	generation int64
	encoded    [formats]compressed
}

// compressed is data that is compressed unless it would hardly become shorter.
type compressed struct {
	data  []byte
	plain bool
}

func compress(data []byte) (compressed, error) {
	shorter, ok, err := compression.Generic().Compress(data)
	if err != nil || !ok {
		return compressed{data, true}, err
	}
	return compressed{shorter, false}, nil
}

func (c compressed) decompress() ([]byte, error) {
	if c.plain {
		return c.data, nil
	}
	return compression.Generic().Decompress(nil, c.data)
}

// in returns what the definition adds in a format. static are the names that the document has
// without definitions.
func (d *definition) in(f format, of *crd, static *parts, definitions Definitions) ([]byte, error) {
	if d.encoded[f].data != nil {
		return d.encoded[f].decompress()
	}
	var encoded []byte
	var err error
	name := of.Name
	if f == protobufFormat {
		if encoded, err = d.in(jsonFormat, of, static, definitions); err == nil {
			encoded, err = openapihandler.ToProtoBinary(encoded)
		}
	} else if of, err = definitions.WithSchemas(of); err == nil {
		encoded, err = build(of, static)
	}
	if err != nil {
		return nil, fmt.Errorf("build the OpenAPI v2 document of %s: %w", name, err)
	}
	d.encoded[f], err = compress(encoded)
	return encoded, err
}

// build returns the document of a definition in JSON, as upstream's controller builds it, without
// what the document has anyway: every definition refers to the same schemas and parameters.
func build(of *crd, static *parts) ([]byte, error) {
	var versions []*spec.Swagger
	for i := range of.Spec.Versions {
		if !of.Spec.Versions[i].Served {
			continue
		}
		built, err := builder.BuildOpenAPIV2(of, of.Spec.Versions[i].Name, buildOptions(true))
		if err != nil {
			return nil, err
		}
		built.Definitions = openapihandler.PruneDefaults(built.Definitions)
		for name := range static.entries[definitions] {
			delete(built.Definitions, name)
		}
		for name := range static.entries[parameters] {
			delete(built.Parameters, name)
		}
		versions = append(versions, built)
	}
	merged, err := builder.MergeSpecs(&spec.Swagger{}, versions...)
	if err != nil {
		return nil, err
	}
	// A document in protobuf has these.
	merged.Swagger, merged.Info = "2.0", &spec.Info{InfoProps: spec.InfoProps{Title: of.Name, Version: "v1"}}
	if merged.Paths == nil {
		merged.Paths = &spec.Paths{}
	}
	return merged.MarshalJSON()
}
