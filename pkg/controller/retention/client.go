// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
)

// requestTimeout ends a request of a server that does not respond, so that other resources are not
// delayed.
const requestTimeout = 30 * time.Second

// Objects reads and deletes objects.
type Objects interface {
	// List returns a page of a list in JSON.
	List(ctx context.Context, resource schema.GroupVersionResource, limit int, next string) ([]byte, error)
	// Get returns an object in JSON.
	Get(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName) ([]byte, error)
	// Delete deletes an object in one state.
	Delete(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName, uid types.UID, resourceVersion string) error
}

// NewObjects returns the objects of annex. It reads them with rest, which has a path for each
// request, and deletes them with metadata.
func NewObjects(annexREST func() restclient.Interface, annexMetadata metadata.Interface) Objects {
	return &client{annexREST, annexMetadata}
}

type client struct {
	rest     func() restclient.Interface
	metadata metadata.Interface
}

// List implements Objects.
func (c *client) List(ctx context.Context, resource schema.GroupVersionResource, limit int, next string) ([]byte, error) {
	request := c.rest().Get().AbsPath("/apis", resource.Group, resource.Version, resource.Resource).
		Param("limit", strconv.Itoa(limit)).SetHeader("Accept", "application/json").Timeout(requestTimeout)
	if next != "" {
		request = request.Param("continue", next)
	}
	data, err := raw(request.Do(ctx))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	return data, nil
}

// Get implements Objects.
func (c *client) Get(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName) ([]byte, error) {
	in := path.Join("/apis", resource.Group, resource.Version)
	if name.Namespace != "" {
		in = path.Join(in, "namespaces", name.Namespace)
	}
	data, err := raw(c.rest().Get().AbsPath(in, resource.Resource, name.Name).SetHeader("Accept", "application/json").Timeout(requestTimeout).Do(ctx))
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", resource.GroupResource(), name, err)
	}
	return data, nil
}

// raw returns the body of a response. The error of Result.Raw lacks the server's message.
func raw(result restclient.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// Delete implements Objects. It deletes in the foreground, as Kubernetes' TTL controller deletes
// Jobs: dependents are deleted first, and those that block the deletion hold the object.
func (c *client) Delete(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName, uid types.UID, resourceVersion string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := c.metadata.Resource(resource).Namespace(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	})
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", resource.GroupResource(), name, err)
	}
	return nil
}
