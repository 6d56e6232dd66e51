// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injectionpath parses the paths of pod templates in InjectionProfiles.
package injectionpath

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	// MaxTemplates bounds the paths of a target.
	MaxTemplates = 16
	// maxLength bounds the characters of a path.
	maxLength = 512
)

// Step is one field of the path of a pod template.
type Step struct {
	// Field is its name.
	Field string `protobuf:"bytes,1,opt,name=field"`
	// Each continues in every item of the list, or in every value of the map, that it has.
	Each bool `protobuf:"varint,2,opt,name=each"`
}

// each is the suffix of a field that selects all of its items.
const each = "[*]"

var fieldName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// Parse parses a path such as spec.workerGroupSpecs[*].template.
func Parse(path string) ([]Step, error) {
	if len(path) > maxLength {
		return nil, fmt.Errorf("is longer than %d characters", maxLength)
	}
	var steps []Step
	for field := range strings.SplitSeq(path, ".") {
		name, all := strings.CutSuffix(field, each)
		if !fieldName.MatchString(name) {
			return nil, fmt.Errorf("%q is not the name of a field, which may be followed by %s", field, each)
		}
		steps = append(steps, Step{Field: name, Each: all})
	}
	switch steps[0].Field {
	case "apiVersion", "kind", "metadata", "status":
		return nil, errors.New("pod templates cannot be in apiVersion, kind, metadata or status")
	}
	return steps, nil
}
