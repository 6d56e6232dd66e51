// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect calls functions and API clients in tests, and ends the test on an
// error.
package expect

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// NoError ends the test if there is an error. The explanation is a format with its
// arguments.
func NoError(t testing.TB, err error, explanation ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(Explain(err.Error(), explanation...))
	}
}

// Succeeds is NoError without ending the test.
func Succeeds(t testing.TB, err error, explanation ...any) {
	t.Helper()
	if err != nil {
		t.Error(Explain(err.Error(), explanation...))
	}
}

// Explain puts an explanation, if there is one, before a problem.
func Explain(problem string, explanation ...any) string {
	if len(explanation) == 0 {
		return problem
	}
	return fmt.Sprintf(explanation[0].(string), explanation[1:]...) + ": " + problem
}

// Missing reports which of the words a text lacks. It is empty if the text has all of them.
func Missing(text string, words ...string) string {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Sprintf("no %q in: %s", word, text)
		}
	}
	return ""
}

// MissingFrom is Missing for the text of an error.
func MissingFrom(err error, words ...string) string {
	if err == nil {
		return fmt.Sprintf("no error, want one with %q", words)
	}
	return Missing(err.Error(), words...)
}

// Contains fails the test unless a text has all words.
func Contains(t testing.TB, text string, words ...string) {
	t.Helper()
	if missing := Missing(text, words...); missing != "" {
		t.Error(missing)
	}
}

// Error fails the test unless there is an error with all words.
func Error(t testing.TB, err error, words ...string) {
	t.Helper()
	if missing := MissingFrom(err, words...); missing != "" {
		t.Error(missing)
	}
}

// ErrorOrNone is Error for one text, and fails the test if there is an error although the
// text is empty.
func ErrorOrNone(t testing.TB, err error, text string) {
	t.Helper()
	if text == "" {
		Succeeds(t, err)
		return
	}
	Error(t, err, text)
}

// ErrorLine is Error for an error that must be one line.
func ErrorLine(t testing.TB, err error, words ...string) {
	t.Helper()
	Error(t, err, words...)
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one line", err)
	}
}

// Equal fails the test unless got equals want.
func Equal(t testing.TB, want, got any, explanation ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(Explain("not equal (-want +got):\n"+diff, explanation...))
	}
}

// FitsTerminal fails the test if a line of a table is wider than a terminal, of 80 columns.
func FitsTerminal(t testing.TB, table string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		if width := utf8.RuneCountInString(strings.TrimRight(line, " ")); width > 80 {
			t.Errorf("%d columns: %s", width, line)
		}
	}
}

// FieldErrors fails the test unless a validation returned exactly these errors, in order. want has
// the beginning of each error: apimachinery's explanations are long.
func FieldErrors(t testing.TB, got field.ErrorList, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d errors, want %d: %v", len(got), len(want), got)
	}
	for i, err := range got {
		if !strings.HasPrefix(err.Error(), want[i]) {
			t.Errorf("error %q, want %q", err, want[i])
		}
	}
}

// Create creates an object with a typed client.
func Create[T any](t testing.TB, client interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}, object T) T {
	t.Helper()
	created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	NoError(t, err, "create a %T", object)
	return created
}

// getter is a typed client.
type getter[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// Get reads an object with a typed client.
func Get[T any](t testing.TB, client getter[T], name string) T {
	t.Helper()
	object, err := client.Get(t.Context(), name, metav1.GetOptions{})
	NoError(t, err, "get %s", name)
	return object
}

// Update updates an object with a typed client.
func Update[T any](t testing.TB, client interface {
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}, object T) T {
	t.Helper()
	updated, err := client.Update(t.Context(), object, metav1.UpdateOptions{})
	NoError(t, err, "update a %T", object)
	return updated
}

// Delete deletes an object, and does not wait until it is gone.
func Delete(t testing.TB, client interface {
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}, name string) {
	t.Helper()
	NoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}), "delete %s", name)
}

// Patch sends a JSON merge patch with a typed client.
func Patch[T any](t testing.TB, client interface {
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}, name, patch string, subresources ...string) T {
	t.Helper()
	patched, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	NoError(t, err, "patch %s", name)
	return patched
}

// Eventually waits until a check accepts an object, and returns it.
func Eventually[T any](t testing.TB, client getter[T], name, what string, check func(T) bool) (object T) {
	t.Helper()
	poll.UntilDone(t, what, func() (done bool, saw string) {
		var err error
		if object, err = client.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return check(object), fmt.Sprintf("%+v", object)
	})
	return object
}

// Gone waits until an object is deleted.
func Gone[T any](t testing.TB, client getter[T], name string) {
	t.Helper()
	poll.UntilDone(t, name+" is deleted", func() (done bool, saw string) {
		object, err := client.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v, error %v", object, err)
	})
}
