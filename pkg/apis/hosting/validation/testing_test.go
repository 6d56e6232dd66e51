// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// readyCondition is a condition with all that is required of one.
var readyCondition = metav1.Condition{
	Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reached", LastTransitionTime: metav1.Unix(1, 0),
}

// expectErrors compares errors with what is wanted of them, each "field: type".
func expectErrors(t *testing.T, want []string, errs field.ErrorList) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Field+": "+string(err.Type))
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s\nin full: %v", diff, errs.ToAggregate())
	}
}

const (
	required     = string(field.ErrorTypeRequired)
	invalid      = string(field.ErrorTypeInvalid)
	forbidden    = string(field.ErrorTypeForbidden)
	notSupported = string(field.ErrorTypeNotSupported)
	tooMany      = string(field.ErrorTypeTooMany)
	duplicate    = string(field.ErrorTypeDuplicate)
)

func at(path, errorType string) string { return strings.Join([]string{path, errorType}, ": ") }
