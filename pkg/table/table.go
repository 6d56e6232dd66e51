// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package table turns objects into the tables that kubectl prints, and formats the values that
// annex's commands print in the same way. A resource names its columns once, each with the function
// that fills its cells; the convertor does the rest: single objects and lists, list metadata, headers.
package table

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Wide is the priority of a column that is printed with `-o wide` only.
const Wide int32 = 1

var metadataDoc = metav1.ObjectMeta{}.SwaggerDoc()

// Object is a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.Object
}

// Column is one column of a table over objects of type T.
type Column[T Object] struct {
	// Name is the header in title case; kubectl prints it in capitals.
	Name string
	// Type is the OpenAPI type of the cells, "string" by default.
	Type string
	// Format is the OpenAPI format; "name" marks the column that identifies the row.
	Format      string
	Description string
	// Priority is zero for columns that are always printed, or Wide.
	Priority int32
	// Value returns the cell of an object, a JSON scalar: string, int64, float64 or bool.
	Value func(T) any
}

// Name returns the column that identifies the row.
func Name[T Object]() Column[T] {
	return Column[T]{
		Name:        "Name",
		Format:      "name",
		Description: metadataDoc["name"],
		Value:       func(object T) any { return object.GetName() },
	}
}

// Age returns the column with the time since creation.
func Age[T Object]() Column[T] {
	return Column[T]{
		Name:        "Age",
		Description: metadataDoc["creationTimestamp"],
		Value:       func(object T) any { return Since(object.GetCreationTimestamp().Time) },
	}
}

// CreatedAt returns the column with the time of creation, as Kubernetes has it for kinds
// without columns of their own.
func CreatedAt[T Object]() Column[T] {
	return Column[T]{
		Name:        "Created At",
		Type:        "date",
		Description: metadataDoc["creationTimestamp"],
		Value:       func(object T) any { return object.GetCreationTimestamp().UTC().Format(time.RFC3339) },
	}
}

// New returns the convertor of objects of type T. Errors name the resource.
func New[T Object](resource schema.GroupResource, columns ...Column[T]) *Convertor[T] {
	definitions := make([]metav1.TableColumnDefinition, 0, len(columns))
	for _, column := range columns {
		if column.Type == "" {
			column.Type = "string"
		}
		definitions = append(definitions, metav1.TableColumnDefinition{
			Name:        column.Name,
			Type:        column.Type,
			Format:      column.Format,
			Description: column.Description,
			Priority:    column.Priority,
		})
	}
	return &Convertor[T]{resource: resource, columns: columns, definitions: definitions}
}

// Convertor implements rest.TableConvertor of the API server.
type Convertor[T Object] struct {
	resource    schema.GroupResource
	columns     []Column[T]
	definitions []metav1.TableColumnDefinition
}

// ConvertToTable implements rest.TableConvertor. Rows contain the whole object; the API
// server reduces it to the client's includeObject.
func (c *Convertor[T]) ConvertToTable(_ context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{Rows: []metav1.TableRow{}}
	if err := c.addRows(table, object); err != nil {
		return nil, err
	}
	copyListMeta(table, object)
	// A watch sends the headers only once.
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		table.ColumnDefinitions = c.definitions
	}
	return table, nil
}

func (c *Convertor[T]) addRows(table *metav1.Table, object runtime.Object) error {
	if !meta.IsListType(object) {
		return c.addRow(table, object)
	}
	table.Rows = make([]metav1.TableRow, 0, meta.LenList(object))
	return meta.EachListItem(object, func(item runtime.Object) error {
		return c.addRow(table, item)
	})
}

func (c *Convertor[T]) addRow(table *metav1.Table, object runtime.Object) error {
	typedObject, ok := object.(T)
	if !ok {
		return notAcceptableError{resource: c.resource, object: object}
	}
	cells := make([]any, 0, len(c.columns))
	for _, column := range c.columns {
		cells = append(cells, column.Value(typedObject))
	}
	table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: object}})
	return nil
}

// copyListMeta copies what clients need in order to watch or page.
func copyListMeta(table *metav1.Table, object runtime.Object) {
	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
		return
	}
	if single, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
}

// notAcceptableError makes the API server respond with 406 to objects without a table.
type notAcceptableError struct {
	resource schema.GroupResource
	object   runtime.Object
}

func (e notAcceptableError) Error() string {
	return fmt.Sprintf("the resource %s does not support being converted to a Table: unexpected type %T", e.resource, e.object)
}

// Status implements apierrors.APIStatus.
func (e notAcceptableError) Status() metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: e.Error(),
	}
}
