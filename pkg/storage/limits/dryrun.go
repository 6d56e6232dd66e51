// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/usage"
)

// CheckCreate returns nil if there is room for another object, however small, and else why
// it would be forbidden. It tells of the moment before last: only a write is checked
// against what is there.
func CheckCreate(counter Counter, limits Limits, resource schema.GroupResource, namespace, name string) error {
	why := exceeded(counter, limits, resource, namespace, usage.Usage{Objects: 1, Bytes: 1})
	if why == "" {
		return nil
	}
	return apierrors.NewForbidden(resource, name, errors.New(why))
}
