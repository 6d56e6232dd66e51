// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

// mediaType is that of a part.
const mediaType = "application/octet-stream"

// Backend reaches the etcds of Stores. Its errors are for clients.
type Backend interface {
	// Source reads backups of a Store.
	Source(store string) (*backup.Source, error)
	// Target restores to a Store.
	Target(store string) (*backup.Target, error)
	// Defined reports whether there is a CustomResourceDefinition of this name. It
	// asks the etcd, not a cache.
	Defined(ctx context.Context, name string) (bool, error)
}

// connecter is what the endpoints have in common.
type connecter struct {
	new    func() runtime.Object
	method string
}

// New implements rest.Storage.
func (c connecter) New() runtime.Object { return c.new() }

// Destroy implements rest.Storage.
func (connecter) Destroy() {}

// NewConnectOptions implements rest.Connecter. Parameters are read from the URL.
func (connecter) NewConnectOptions() (options runtime.Object, subpath bool, key string) {
	return nil, false, ""
}

// ConnectMethods implements rest.Connecter.
func (c connecter) ConnectMethods() []string { return []string{c.method} }

// StoreREST is stores/backup.
type StoreREST struct {
	connecter
	stores  rest.Getter
	backend Backend
}

// NewStore returns stores/backup.
func NewStore(stores rest.Getter, backend Backend) *StoreREST {
	return &StoreREST{connecter{func() runtime.Object { return &hosting.Store{} }, http.MethodGet}, stores, backend}
}

var _ rest.Connecter = &StoreREST{}

// Connect implements rest.Connecter.
func (r *StoreREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if _, err := r.stores.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, err
	}
	return sendPart(r.backend, name, nil, responder)
}

// ResourceREST is hostedresources/backup.
type ResourceREST struct {
	connecter
	resources rest.Getter
	backend   Backend
}

var errNotServed = errors.New("nothing defines the resource: only one that annex serves can be backed up")

// NewResource returns hostedresources/backup.
func NewResource(resources rest.Getter, backend Backend) *ResourceREST {
	return &ResourceREST{connecter{func() runtime.Object { return &hosting.HostedResource{} }, http.MethodGet}, resources, backend}
}

var _ rest.Connecter = &ResourceREST{}

// Connect implements rest.Connecter.
func (r *ResourceREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	found, err := r.resources.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	hosted := found.(*hosting.HostedResource)
	store := hosted.Spec.StoreName
	switch {
	case store == "":
		return nil, apierrors.NewConflict(hosting.Resource("hostedresources"), name, errors.New("it has no Store yet"))
	case hosted.Status.DefinitionUID == "":
		// Whoever makes HostedResources chooses their names, and so the keys.
		return nil, apierrors.NewConflict(hosting.Resource("hostedresources"), name, errNotServed)
	}
	resource := schema.ParseGroupResource(name)
	return sendPart(r.backend, store, &resource, responder)
}

// sendPart answers with the part that a request asks for.
func sendPart(backend Backend, store string, resource *schema.GroupResource, responder rest.Responder) (http.Handler, error) {
	source, err := backend.Source(store)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at, err := position(req, resource)
		if err != nil {
			responder.Error(err)
			return
		}
		answer := &answer{ResponseWriter: w}
		if err := source.Part(req.Context(), answer, at); err != nil && !answer.begun {
			responder.Error(explain(err))
		}
		// A part that is cut lacks its end, and the client asks for it again.
	}), nil
}

// answer sets the header once there is something to say.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) Write(data []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.Header().Set("Content-Type", mediaType)
	}
	return a.ResponseWriter.Write(data)
}

// position reads which part is wanted.
func position(req *http.Request, resource *schema.GroupResource) (backup.Position, error) {
	query := req.URL.Query()
	at := backup.Position{Resource: resource, After: query.Get("continue")}
	if given := query.Get("revision"); given != "" {
		var err error
		if at.Revision, err = strconv.ParseInt(given, 10, 64); err != nil || at.Revision <= 0 {
			return at, apierrors.NewBadRequest(fmt.Sprintf("revision %q must be a positive number", given))
		}
	}
	if (at.Revision == 0) != (at.After == "") {
		return at, apierrors.NewBadRequest("revision and continue are given together, for a part that is not the first")
	}
	return at, nil
}
