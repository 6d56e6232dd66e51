// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package table_test

import (
	"errors"
	"math"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/table"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var convertor = table.New(corev1.Resource("namespaces"),
	table.Name[*corev1.Namespace](),
	table.Column[*corev1.Namespace]{
		Name:        "Labels",
		Type:        "integer",
		Description: "How many labels it has",
		Priority:    table.Wide,
		Value:       func(ns *corev1.Namespace) any { return int64(len(ns.Labels)) },
	},
	table.Age[*corev1.Namespace](),
)

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "7", Labels: map[string]string{"a": "b"},
		CreationTimestamp: metav1.NewTime(time.Now().Add(-36 * time.Hour)),
	}}
}

func TestConvertToTable(t *testing.T) {
	t.Parallel()
	first, second := namespace("first"), namespace("second")
	rows := func(objects ...*corev1.Namespace) []metav1.TableRow {
		out := make([]metav1.TableRow, 0, len(objects))
		for _, o := range objects {
			out = append(out, metav1.TableRow{Cells: []any{o.Name, int64(1), "36h"}, Object: runtime.RawExtension{Object: o}})
		}
		return out
	}
	listMeta := metav1.ListMeta{ResourceVersion: "9", Continue: "token", RemainingItemCount: new(int64(3))}
	tests := []struct {
		name     string
		object   runtime.Object
		listMeta metav1.ListMeta
		rows     []metav1.TableRow
	}{
		{
			name: "list", object: &corev1.NamespaceList{ListMeta: listMeta, Items: []corev1.Namespace{*first, *second}},
			listMeta: listMeta, rows: rows(first, second),
		},
		{name: "empty list", object: &corev1.NamespaceList{ListMeta: listMeta}, listMeta: listMeta, rows: rows()},
		{name: "single object", object: first, listMeta: metav1.ListMeta{ResourceVersion: "7"}, rows: rows(first)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := convertor.ConvertToTable(t.Context(), test.object, nil)
			expect.NoError(t, err, "ConvertToTable")
			expect.Equal(t, test.listMeta, got.ListMeta, "list metadata")
			expect.Equal(t, test.rows, got.Rows, "rows")
		})
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	got, err := convertor.ConvertToTable(t.Context(), namespace("a"), &metav1.TableOptions{})
	expect.NoError(t, err, "ConvertToTable")
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	want := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Labels", Type: "integer", Description: "How many labels it has", Priority: 1},
		{Name: "Age", Type: "string", Description: doc["creationTimestamp"]},
	}
	expect.Equal(t, want, got.ColumnDefinitions, "columns")

	got, err = convertor.ConvertToTable(t.Context(), namespace("a"), &metav1.TableOptions{NoHeaders: true})
	expect.NoError(t, err, "ConvertToTable without headers")
	if len(got.ColumnDefinitions) != 0 || len(got.Rows) != 1 {
		t.Errorf("without headers: %d columns, %d rows; want 0, 1", len(got.ColumnDefinitions), len(got.Rows))
	}
}

func TestForeignObjectIsNotAcceptable(t *testing.T) {
	t.Parallel()
	for _, object := range []runtime.Object{&corev1.Pod{}, &corev1.PodList{Items: make([]corev1.Pod, 1)}} {
		_, err := convertor.ConvertToTable(t.Context(), object, nil)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusNotAcceptable {
			t.Errorf("%T: error %v, want status 406", object, err)
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	if got := table.Since(time.Time{}); got != table.Unknown {
		t.Errorf("zero time: %q, want %q", got, table.Unknown)
	}
	if got := table.Since(time.Now().Add(-49 * time.Hour)); got != "2d1h" {
		t.Errorf("49 hours: %q, want 2d1h", got)
	}
}

func TestOrNone(t *testing.T) {
	t.Parallel()
	if got := table.OrNone(""); got != table.None {
		t.Errorf("empty: %q, want %q", got, table.None)
	}
	if got := table.OrNone(corev1.NamespaceActive); got != "Active" {
		t.Errorf("phase: %q, want Active", got)
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	tests := map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1Ki", 1280: "1.2Ki", 10 * 1024: "10Ki", 10*1024 + 600: "11Ki",
		1024*1024 - 1: "1Mi", 1258291: "1.2Mi", 34 << 20: "34Mi", 3 << 29: "1.5Gi", 8 << 40: "8Ti", 2 << 50: "2Pi",
		math.MaxInt64: "8Ei", -1536: "-1.5Ki",
	}
	for n, want := range tests {
		if got := table.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}
