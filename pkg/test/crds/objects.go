// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"archive/zip"
	"bufio"
	"context"
	"fmt"
	"io"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Objects returns the objects of a CRD in the module of the source: its examples and test data.
// Some are invalid on purpose, and many have the same name.
func Objects(ctx context.Context, source Source, manifest Manifest) ([]*unstructured.Unstructured, error) {
	archive, err := archiveOf(ctx, source.Module)
	if err != nil {
		return nil, fmt.Errorf("get the archive of module %s: %w", source.Module, err)
	}
	files, err := zip.OpenReader(archive.Zip)
	if err != nil {
		return nil, fmt.Errorf("open the archive of module %s: %w", source.Module, err)
	}
	defer files.Close()
	served := map[string]bool{}
	for _, version := range manifest.CRD.Spec.Versions {
		served[manifest.CRD.Spec.Group+"/"+version.Name] = version.Served
	}
	var objects []*unstructured.Unstructured
	for _, file := range files.File {
		if path.Ext(file.Name) != ".yaml" {
			continue
		}
		content, err := file.Open()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file.Name, err)
		}
		for _, object := range readObjects(content) {
			if served[object.GetAPIVersion()] && object.GetKind() == manifest.CRD.Spec.Names.Kind {
				objects = append(objects, object)
			}
		}
		if err := content.Close(); err != nil {
			return nil, fmt.Errorf("close %s: %w", file.Name, err)
		}
	}
	return objects, nil
}

// readObjects skips what it cannot parse, such as templates.
func readObjects(content io.Reader) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(content))
	for {
		document, err := documents.Read()
		if err != nil {
			return objects
		}
		object := &unstructured.Unstructured{}
		asJSON, err := yaml.YAMLToJSON(document)
		if err == nil && object.UnmarshalJSON(asJSON) == nil {
			objects = append(objects, object)
		}
	}
}
