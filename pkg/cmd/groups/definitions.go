// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definitions returns the names of the group's definitions in the main cluster. Their schemas,
// which may have megabytes, are not read.
func (s *session) definitions(ctx context.Context) ([]string, error) {
	var names []string
	err := eachPage(ctx, s.metadata.Resource(definitionsResource), func(page *metav1.PartialObjectMetadataList) bool {
		for i := range page.Items {
			// The name of a definition is "<plural>.<group>".
			if _, group, _ := strings.Cut(page.Items[i].Name, "."); group == s.group {
				names = append(names, page.Items[i].Name)
			}
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the CustomResourceDefinitions of %s: %w", s.server, err)
	}
	slices.Sort(names)
	return names, nil
}

// pageSize is the number of objects in a page.
const pageSize = 500

// lister lists metadata.
type lister interface {
	List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
}

// eachPage calls use with each page of a list until it returns false.
func eachPage(ctx context.Context, from lister, use func(page *metav1.PartialObjectMetadataList) bool) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := from.List(ctx, options)
		if err != nil {
			return err
		}
		if options.Continue = page.Continue; !use(page) || options.Continue == "" {
			return nil
		}
	}
}
