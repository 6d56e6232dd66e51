// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writeinfo

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// recorder is a storage that records the description of its writes.
type recorder struct {
	storage.Interface
	got *Info
}

func (r *recorder) Create(ctx context.Context, _ string, _, _ runtime.Object, _ uint64) error {
	r.got = FromContext(ctx)
	return nil
}

func (r *recorder) GuaranteedUpdate(
	ctx context.Context, _ string, _ runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	r.got = FromContext(ctx)
	_, _, err := update(&metav1.PartialObjectMetadata{}, storage.ResponseMeta{})
	return err
}

func TestStorage(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, tc := range map[string]struct {
		create      bool
		subresource string
		deleted     *metav1.Time
		want        Info
	}{
		"create":                     {create: true},
		"update":                     {want: Info{Update: true}},
		"update of the status":       {subresource: "status", want: Info{Update: true, Status: true}},
		"update of the scale":        {subresource: "scale", want: Info{Update: true}},
		"update while it is deleted": {deleted: &now, want: Info{Update: true, Terminating: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Subresource: tc.subresource})
			inner := &recorder{}
			var err error
			if tc.create {
				err = Storage(inner).Create(ctx, "a", nil, nil, 0)
			} else {
				err = Storage(inner).GuaranteedUpdate(ctx, "a", nil, false, nil, func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
					return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}}, nil, nil
				}, nil)
			}
			expect.NoError(t, err)
			if diff := cmp.Diff(&tc.want, inner.got); diff != "" {
				t.Errorf("described (-want +got):\n%s", diff)
			}
		})
	}
	if got := FromContext(t.Context()); got != nil {
		t.Errorf("got %v without a write, want nil", got)
	}
}
