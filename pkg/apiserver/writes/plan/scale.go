// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// scale has the places of the subresource scale, which upstream validates in each object that has it.
type scale struct{ replicas, selectors [][]string }

func newScale(of *apiextensionsv1.CustomResourceSubresourceScale) *scale {
	s := &scale{replicas: [][]string{namesOf(of.SpecReplicasPath), namesOf(of.StatusReplicasPath)}}
	if of.LabelSelectorPath != nil {
		s.selectors = append(s.selectors, namesOf(*of.LabelSelectorPath))
	}
	return s
}

// namesOf returns the fields of a JSON path, which has no others.
func namesOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// check reports whether upstream accepts the values of an object.
func (s *scale) check(object []byte) bool {
	if s == nil {
		return true
	}
	for _, path := range s.replicas {
		if value := valueAt(object, path); value != "" {
			if replicas, err := strconv.ParseInt(value, 10, 64); err != nil || replicas < 0 || replicas > math.MaxInt32 {
				return false
			}
		}
	}
	for _, path := range s.selectors {
		if value := valueAt(object, path); value != "" && value[0] != '"' {
			return false
		}
	}
	return true
}

// valueAt returns the value at a path, "" without any, and null if what is above it is no object.
func valueAt(object []byte, path []string) string {
	value := canonicaljson.StringOf(object)
	for _, name := range path {
		if value[0] != '{' {
			return "null"
		}
		found, ok := canonicaljson.Member(value, 0, name)
		if !ok {
			return ""
		}
		value = value[found.Start:found.End]
	}
	return value
}
