// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typedtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

// Request returns the context of a request to a namespace, empty for cluster-scoped objects.
func Request(t testing.TB, namespace string) context.Context {
	t.Helper()
	return genericapirequest.WithNamespace(t.Context(), namespace)
}

// RequestAs is Request with a user.
func RequestAs(t testing.TB, namespace, name string, groups ...string) context.Context {
	t.Helper()
	return genericapirequest.WithUser(Request(t, namespace), &user.DefaultInfo{Name: name, Groups: groups})
}

// Create creates an object.
func Create[T runtime.Object](ctx context.Context, endpoint rest.Storage, object T) (T, error) {
	created, err := endpoint.(rest.Creater).Create(ctx, object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		return object, err
	}
	return created.(T), nil
}

// Update replaces an object. Some endpoints create one that does not exist.
func Update[T table.Object](ctx context.Context, endpoint rest.Storage, object T) (T, error) {
	updated, _, err := endpoint.(rest.Updater).Update(ctx, object.GetName(), rest.DefaultUpdatedObjectInfo(object),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		return object, err
	}
	return updated.(T), nil
}

// Delete deletes an object.
func Delete(ctx context.Context, endpoint rest.Storage, name string) error {
	_, _, err := endpoint.(rest.GracefulDeleter).Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	return err
}

// Cells returns the cells that kubectl prints for objects, one row for each.
func Cells(t testing.TB, convertor rest.TableConvertor, objects runtime.Object) [][]any {
	t.Helper()
	converted, err := convertor.ConvertToTable(t.Context(), objects, nil)
	if err != nil {
		t.Fatalf("ConvertToTable: %v", err)
	}
	var rows [][]any
	for _, row := range converted.Rows {
		rows = append(rows, row.Cells)
	}
	return rows
}

// Columns returns the names of the columns that kubectl prints, and of those that it adds with -o wide.
func Columns(t testing.TB, convertor rest.TableConvertor, objects runtime.Object) (always, wide []string) {
	t.Helper()
	converted, err := convertor.ConvertToTable(t.Context(), objects, nil)
	if err != nil {
		t.Fatalf("ConvertToTable: %v", err)
	}
	for _, column := range converted.ColumnDefinitions {
		if column.Priority == 0 {
			always = append(always, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	return always, wide
}

// Print returns the table that kubectl prints for objects, without -o wide.
func Print(t testing.TB, convertor rest.TableConvertor, objects runtime.Object) string {
	t.Helper()
	converted, err := convertor.ConvertToTable(t.Context(), objects, nil)
	if err != nil {
		t.Fatalf("ConvertToTable: %v", err)
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	row := func(cell func(column int) any) {
		for i, column := range converted.ColumnDefinitions {
			if column.Priority == 0 {
				_, _ = fmt.Fprintf(w, "%v\t", cell(i))
			}
		}
		_, _ = fmt.Fprintln(w)
	}
	row(func(i int) any { return strings.ToUpper(converted.ColumnDefinitions[i].Name) })
	for _, r := range converted.Rows {
		row(func(i int) any { return r.Cells[i] })
	}
	if err := w.Flush(); err != nil {
		t.Fatalf("print the table: %v", err)
	}
	return out.String()
}

// CheckStatus creates an object, and returns it. It checks that the main endpoint of the resource
// writes metadata and spec, and /status the status. change changes spec and status to other valid
// values, spoil to invalid ones.
func CheckStatus[T table.Object](t testing.TB, endpoints typed.Endpoints, resource string, object T, change, spoil func(T)) T {
	t.Helper()
	ctx, main, status := Request(t, object.GetNamespace()), endpoints[resource], endpoints[resource+"/status"]
	created, err := Create(ctx, main, object)
	if err != nil {
		t.Fatalf("create in %s: %v", resource, err)
	}
	changed := created.DeepCopyObject().(T)
	change(changed)
	changed.SetLabels(map[string]string{"changed": "yes"})

	version := created.GetResourceVersion()
	wrote := func(endpoint rest.Storage, object T) T {
		t.Helper()
		object = object.DeepCopyObject().(T)
		object.SetResourceVersion(version)
		updated, err := Update(ctx, endpoint, object)
		if err != nil {
			t.Fatalf("update in %s: %v", resource, err)
		}
		version = updated.GetResourceVersion()
		return updated
	}
	check := func(endpoint string, got, spec, status, labels T, generation int64) {
		t.Helper()
		for part, want := range map[string]T{"spec": spec, "status": status} {
			if diff := cmp.Diff(field(t, want, part), field(t, got, part)); diff != "" {
				t.Errorf("%s of %s after an update through %s (-want +got):\n%s", part, resource, endpoint, diff)
			}
		}
		if !cmp.Equal(labels.GetLabels(), got.GetLabels()) || got.GetGeneration() != generation {
			t.Errorf("%s after an update through %s: labels %v, generation %d; want %v, %d",
				resource, endpoint, got.GetLabels(), got.GetGeneration(), labels.GetLabels(), generation)
		}
	}
	check("status", wrote(status, changed), created, changed, created, created.GetGeneration())
	// A kind of Kubernetes without a generation keeps zero.
	check("main", wrote(main, changed), changed, changed, changed, 2*created.GetGeneration())
	check("main", wrote(main, created), created, changed, created, 3*created.GetGeneration())

	spoil(changed)
	for name, endpoint := range map[string]rest.Storage{"main": main, "status": status} {
		changed.SetResourceVersion(version)
		if _, err := Update(ctx, endpoint, changed); !apierrors.IsInvalid(err) {
			t.Errorf("an invalid update of %s through %s: %v", resource, name, err)
		}
	}
	for endpoint, want := range map[rest.Storage][]string{main: {"status"}, status: {"metadata", "spec"}} {
		if got := resetFields(endpoint); !got.Equals(setOf(want)) {
			t.Errorf("%s resets the fields %v, want %v", resource, got, want)
		}
	}
	return created
}

// field returns the spec or the status of an object.
func field(t testing.TB, object runtime.Object, name string) any {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatalf("convert %T: %v", object, err)
	}
	return fields[name]
}

func resetFields(endpoint rest.Storage) *fieldpath.Set {
	for _, set := range endpoint.(rest.ResetFieldsStrategy).GetResetFields() {
		return set
	}
	return fieldpath.NewSet()
}

func setOf(names []string) *fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	return set
}
