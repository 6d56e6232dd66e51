// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestPlannedStorm sends writes of one object from several clients at once. None is lost, and none is done twice.
func TestPlannedStorm(t *testing.T) {
	t.Parallel()
	const clients, writes = 8, 12
	p := newPair(t)
	p.startAnnex(t)
	serveLevers(t, p.annex)
	create(t, p.annex, leversPath, lever("storm"))
	levers := p.annex.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "levers"}).Namespace("default")
	text, err := json.Marshal(lever("short"))
	expect.NoError(t, err)
	var short unstructured.Unstructured
	expect.NoError(t, json.Unmarshal(text, &short.Object))
	var all errgroup.Group
	var created, deleted atomic.Int64
	for client := range clients {
		all.Go(func() error {
			for n := 0; n < writes; {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"client-%d":"%d"}},"spec":{"flags":{"c%d":%t}}}`, client, n, client%2, n%2 == 0)
				_, err := levers.Patch(t.Context(), "storm", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if err == nil {
					n++
				} else if !apierrors.IsConflict(err) {
					return err
				}
			}
			return nil
		})
		all.Go(func() error {
			for range writes {
				_, err := levers.Create(t.Context(), &short, metav1.CreateOptions{})
				switch {
				case err == nil:
					created.Add(1)
				case !apierrors.IsAlreadyExists(err):
					return err
				}
				switch err := levers.Delete(t.Context(), "short", metav1.DeleteOptions{}); {
				case err == nil:
					deleted.Add(1)
				case !apierrors.IsNotFound(err):
					return err
				}
			}
			return nil
		})
	}
	expect.NoError(t, all.Wait())
	var object metav1.PartialObjectMetadata
	expect.NoError(t, json.Unmarshal([]byte(p.annex.getLever(t, "storm")), &object))
	for client := range clients {
		expect.Equal(t, fmt.Sprint(writes-1), object.Annotations[fmt.Sprintf("client-%d", client)], "the last write of client", client)
	}
	expect.Equal(t, created.Load(), deleted.Load(), "objects that were created, and deleted")
	expect.Equal(t, "", p.annex.getLever(t, "short"))
}
