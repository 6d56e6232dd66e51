// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// CheckCreate returns the error of creating another object, however small, nil if there is room.
// It uses the current count, which may be outdated: only a real write is checked exactly.
func CheckCreate(counter Counter, limits Limits, resource schema.GroupResource, namespace, name string) error {
	why := exceeded(counter, limits, resource, namespace, usage.Usage{Objects: 1, Bytes: 1})
	if why == "" {
		return nil
	}
	return apierrors.NewForbidden(resource, name, errors.New(why))
}
