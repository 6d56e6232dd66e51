// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const mib = 1 << 20

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		maxBytes, etcdBytes int64
		size                int
		values, levels      int
		field               string
		want                string // "" if the object is accepted
	}{
		"as large as allowed": {maxBytes: 16 * mib, etcdBytes: 17 * mib, size: 16*mib - 512},
		"larger than allowed": {maxBytes: 16 * mib, etcdBytes: 17 * mib, size: 16 * mib,
			want: `widgets.example.com "w" has 167\d{5} bytes, 163\d{2} KiB as it is stored: an object may have 16777216 bytes \(--max-object-bytes\)`},
		"as many values as allowed": {maxBytes: mib, etcdBytes: 17 * mib, values: mib/8 - 10},
		"more values than allowed": {maxBytes: mib, etcdBytes: 17 * mib, values: mib / 8,
			want: `widgets.example.com "w" has 655\d{3} bytes, 64\d KiB as it is stored: an object may have 131072 values, one for each 8 bytes of --max-object-bytes`},
		"deeper than allowed": {maxBytes: 16 * mib, etcdBytes: 17 * mib, size: mib, levels: 80,
			want: `widgets.example.com "w" has 104\d{4} bytes, 102\d KiB as it is stored: it is nested too deep, the limit is 32 levels on average`},
		"long list": {maxBytes: 16 * mib, etcdBytes: 17 * mib, values: MaxItems + 1, field: "list"},
		"longer set than allowed": {maxBytes: 16 * mib, etcdBytes: 17 * mib, values: MaxItems + 1, field: "set",
			want: `widgets.example.com "w" has 10\d{4} bytes, \d+ KiB as it is stored: it has lists with too many items, the limit is 20000`},
		"more than etcd accepts": {maxBytes: 16 * mib, etcdBytes: 0, size: 1700 << 10,
			want: `widgets.example.com "w" has 174\d{4} bytes, 170\d KiB as it is stored: that does not fit into a request to the etcd of Store "archive"`},
		"more than gRPC accepts": {maxBytes: 16 * mib, etcdBytes: 0, size: 8 * mib,
			want: `has 838\d{4} bytes, .* of Store "archive"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := writeinfo.Storage(newStorage(t, Config{
				MaxBytes: test.maxBytes, Definition: definitionOf(t, `{"set":{"x-kubernetes-list-type":"set"}}`),
			}, test.etcdBytes))
			object := widget("w", strings.Repeat("x", test.size))
			if test.values > 0 {
				object.Object["data"] = make([]any, test.values)
			}
			for range test.levels {
				object.Object["data"] = []any{object.Object["data"]}
			}
			if test.field != "" {
				object.Object["data"] = map[string]any{test.field: object.Object["data"]}
			}
			err := store.Create(t.Context(), widgetKey("w"), object, newWidget(), 0)
			checkRefusal(t, "create", err, test.want)

			expect.NoError(t, store.Create(t.Context(), widgetKey("grows"), widget("w", "small"), nil, 0))
			err = store.GuaranteedUpdate(t.Context(), widgetKey("grows"), newWidget(), false, nil, func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
				input.(*unstructured.Unstructured).Object["data"] = object.Object["data"]
				return input, nil, nil
			}, nil)
			checkRefusal(t, "update", err, strings.ReplaceAll(test.want, `"w"`, `"grows"`))
		})
	}
}

func checkRefusal(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusRequestEntityTooLarge {
		t.Fatalf("%s: got %v, want a 413", what, err)
	}
	if !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("%s: got %q, want it to match %q", what, err, want)
	}
}

// TestTerminating removes the finalizer of an object that is larger than a lowered limit.
func TestTerminating(t *testing.T) {
	t.Parallel()
	unlimited := newStorage(t, Config{MaxBytes: mib}, 0)
	store := writeinfo.Storage(unlimited)
	object := widget("w", strings.Repeat("x", mib))
	object.SetFinalizers([]string{"example.com/f"})
	expect.NoError(t, unlimited.Create(t.Context(), widgetKey("w"), object, nil, 0))
	update := func(change func(*unstructured.Unstructured)) error {
		return store.GuaranteedUpdate(t.Context(), widgetKey("w"), newWidget(), false, nil, func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			change(input.(*unstructured.Unstructured))
			return input, nil, nil
		}, nil)
	}
	checkRefusal(t, "an update", update(func(object *unstructured.Unstructured) { object.SetLabels(map[string]string{"a": "b"}) }), "has 10")
	if err := update(func(object *unstructured.Unstructured) {
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
	}); err != nil {
		t.Fatalf("deleting: %v", err)
	}
	expect.NoError(t, update(func(object *unstructured.Unstructured) { object.SetFinalizers(nil) }), "take off the finalizer")
}

// reserved is a request with a reservation.
type reserved struct{}

func (reserved) IsReserved() bool { return true }
func (reserved) MaxItems() int64  { return 0 }

// TestUpdateAcquiresBudget: only a change of a large object waits for the budget.
func TestUpdateAcquiresBudget(t *testing.T) {
	t.Parallel()
	budget := NewBudget(4*mib, 50*time.Millisecond)
	store := writeinfo.Storage(newStorage(t, Config{MaxBytes: 16 * mib, Budget: budget}, 17*mib))
	for name, size := range map[string]int{"large": 3 * mib, "small": 10} {
		expect.NoError(t, store.Create(t.Context(), widgetKey(name), widget(name, strings.Repeat("x", size)), nil, 0))
	}
	var release []func()
	for _, name := range []string{"ann", "bob"} {
		for range userObjects {
			releaseOne, err := budget.Acquire(as(t.Context(), name), 4*mib)
			expect.NoError(t, err)
			release = append(release, releaseOne)
		}
	}
	label := func(object *unstructured.Unstructured) {
		object.SetLabels(map[string]string{"now": time.Now().Format("150405.000")})
	}
	tryUpdate := func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		label(input.(*unstructured.Unstructured))
		return input, nil, nil
	}
	update := func(name string) error {
		return store.GuaranteedUpdate(t.Context(), widgetKey(name), newWidget(), false, nil, tryUpdate, nil)
	}
	if err := update("small"); err != nil {
		t.Errorf("a small object: %v", err)
	}
	if err := update("large"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a large object without budget: got %v, want 429", err)
	}
	ctx := WithRequest(t.Context(), reserved{})
	if err := store.GuaranteedUpdate(ctx, widgetKey("large"), newWidget(), false, nil, tryUpdate, nil); err != nil {
		t.Errorf("a large object with a reservation: %v", err)
	}
	for _, releaseOne := range release {
		releaseOne()
	}
	if err := update("large"); err != nil {
		t.Errorf("a large object: %v", err)
	}
}
