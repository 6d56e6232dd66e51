// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annextest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/annex-dev/annex/pkg/test/process"
)

const fieldManager = "annex-test"

// applyManifests applies files of artifacts/deploy/base to the main cluster.
func applyManifests(ctx context.Context, mainConfig *restclient.Config, names ...string) error {
	root, err := process.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	mainDiscovery, err := discovery.NewDiscoveryClientForConfig(mainConfig)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(mainDiscovery)
	if err != nil {
		return fmt.Errorf("discover the resources of the main cluster: %w", err)
	}
	mainDynamic, err := dynamic.NewForConfig(mainConfig)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, name := range names {
		objects, err := readManifest(filepath.Join(root, "artifacts", "deploy", "base", name))
		if err != nil {
			return err
		}
		for _, object := range objects {
			kind := object.GroupVersionKind()
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				return fmt.Errorf("apply %s of %s: %w", kind.Kind, name, err)
			}
			content, err := json.Marshal(object)
			if err != nil {
				return fmt.Errorf("encode %s %s of %s: %w", kind.Kind, object.GetName(), name, err)
			}
			_, err = mainDynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()).
				Patch(ctx, object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)})
			if err != nil {
				return fmt.Errorf("apply %s %s of %s to the main cluster: %w", kind.Kind, object.GetName(), name, err)
			}
		}
	}
	return nil
}

func readManifest(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a manifest: %w", err)
	}
	defer file.Close()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", path, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
