// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// expectNoError ends the test if there is an error. The explanation is a format with
// its arguments.
func expectNoError(t testing.TB, err error, explanation ...any) {
	t.Helper()
	if err == nil {
		return
	}
	if len(explanation) > 0 {
		err = fmt.Errorf("%s: %w", fmt.Sprintf(explanation[0].(string), explanation[1:]...), err)
	}
	t.Fatal(err)
}

// closedPort returns an address without a listener. Its port is below those that the system
// chooses for other listeners and for connections of tests in parallel.
func closedPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000)))
		if err == nil {
			listener.Close()
			return listener.Addr().String()
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// mustCreate creates an object with a typed client.
func mustCreate[T any](t *testing.T, client interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}, object T) T {
	t.Helper()
	created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	expectNoError(t, err, "create a %T", object)
	return created
}

// mustGet reads an object with a typed client.
func mustGet[T any](t *testing.T, client interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}, name string) T {
	t.Helper()
	object, err := client.Get(t.Context(), name, metav1.GetOptions{})
	expectNoError(t, err, "get %s", name)
	return object
}

// mustUpdate updates an object with a typed client.
func mustUpdate[T any](t *testing.T, client interface {
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}, object T) T {
	t.Helper()
	updated, err := client.Update(t.Context(), object, metav1.UpdateOptions{})
	expectNoError(t, err, "update a %T", object)
	return updated
}

// mustDelete deletes an object, and does not wait until it is gone.
func mustDelete(t *testing.T, client interface {
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}, name string) {
	t.Helper()
	expectNoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}), "delete %s", name)
}
