// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

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
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

// mediaType is the media type of a part.
const mediaType = "application/octet-stream"

// Backend accesses the etcds of Stores. Its errors are API errors.
type Backend interface {
	// Source reads backups of a Store.
	Source(store string) (*backup.Source, error)
	// Target restores to a Store.
	Target(store string) (*backup.Target, error)
	// Defined reports whether a CustomResourceDefinition exists, according to etcd, not a
	// cache.
	Defined(ctx context.Context, name string) (bool, error)
}

// postREST is an endpoint for POST requests below a Store or HostedResource. Parameters are read from
// the URL.
type postREST struct {
	new     func() runtime.Object
	connect func(ctx context.Context, name string, responder rest.Responder) (http.Handler, error)
}

var _ rest.Connecter = postREST{}

// New implements rest.Storage.
func (r postREST) New() runtime.Object { return r.new() }

// Destroy implements rest.Storage.
func (postREST) Destroy() {}

// NewConnectOptions implements rest.Connecter.
func (postREST) NewConnectOptions() (options runtime.Object, subpath bool, key string) {
	return nil, false, ""
}

// ConnectMethods implements rest.Connecter. Backups require POST: many roles allow to get
// everything, and must not allow to read all values of a Store.
func (postREST) ConnectMethods() []string { return []string{http.MethodPost} }

// Connect implements rest.Connecter.
func (r postREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	return r.connect(ctx, name, responder)
}

func newStore() runtime.Object { return &v1alpha1.Store{} }

func newHostedResource() runtime.Object { return &v1alpha1.HostedResource{} }

// backups has the endpoints of backups. A request is for one part, which takes seconds: the API
// server of a main cluster ends requests after a minute. The client joins the parts; see
// pkg/storage/backup for the format.
type backups struct {
	stores, resources rest.Getter
	// storeStatus updates the status of a Store.
	storeStatus rest.Updater
	backend     Backend
	now         func() metav1.Time
}

// ofStore returns stores/backup, which serves a part of a backup of a Store.
func (b backups) ofStore() postREST {
	return postREST{newStore, func(ctx context.Context, name string, responder rest.Responder) (http.Handler, error) {
		if _, err := b.stores.Get(ctx, name, &metav1.GetOptions{}); err != nil {
			return nil, err
		}
		return b.sendPart(name, nil, responder, func(ctx context.Context) {
			if err := b.setLastBackup(ctx, name); err != nil {
				klog.FromContext(ctx).Error(err, "The backup is complete, but the Store does not have its time", "store", name)
			}
		})
	}}
}

// setLastBackup records when the last part of a backup of a Store was sent.
func (b backups) setLastBackup(ctx context.Context, store string) error {
	set := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		updated := old.(*v1alpha1.Store).DeepCopy()
		updated.Status.LastBackupTime = new(b.now())
		return updated, nil
	})
	ctx = request.WithNamespace(ctx, metav1.NamespaceNone)
	_, _, err := b.storeStatus.Update(ctx, store, set, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

var errNotServed = errors.New("the resource is not defined: only served resources can be backed up")

// ofResource returns hostedresources/backup, which serves a part of a backup of one resource.
func (b backups) ofResource() postREST {
	return postREST{newHostedResource, func(ctx context.Context, name string, responder rest.Responder) (http.Handler, error) {
		found, err := b.resources.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		hosted := found.(*v1alpha1.HostedResource)
		switch {
		case hosted.Spec.StoreName == "":
			return nil, apierrors.NewConflict(v1alpha1.Resource("hostedresources"), name, errors.New("it has no Store yet"))
		case hosted.Status.DefinitionUID == "":
			// The name, and so the keys, could be chosen by the creator of the
			// HostedResource.
			return nil, apierrors.NewConflict(v1alpha1.Resource("hostedresources"), name, errNotServed)
		}
		resource := schema.ParseGroupResource(name)
		return b.sendPart(hosted.Spec.StoreName, &resource, responder, func(context.Context) {})
	}}
}

// sendPart responds with the requested part, and calls completed after the last one.
func (b backups) sendPart(store string, resource *schema.GroupResource, responder rest.Responder, completed func(context.Context)) (http.Handler, error) {
	source, err := b.backend.Source(store)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at, err := position(req, resource)
		if err != nil {
			responder.Error(err)
			return
		}
		part := &partWriter{ResponseWriter: w}
		last, err := source.Part(req.Context(), part, at)
		switch {
		case err != nil && !part.begun:
			responder.Error(explain(err))
		case last:
			completed(req.Context())
		}
		// The client detects a truncated part and retries.
	}), nil
}

// partWriter sets the header at the first write.
type partWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *partWriter) Write(data []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.Header().Set("Content-Type", mediaType)
	}
	return w.ResponseWriter.Write(data)
}

// position parses the position of the requested part.
func position(req *http.Request, resource *schema.GroupResource) (backup.Position, error) {
	query := req.URL.Query()
	at := backup.Position{Resource: resource, After: query.Get("continue"), Data: query.Get("data")}
	if given := query.Get("revision"); given != "" {
		var err error
		if at.Revision, err = strconv.ParseInt(given, 10, 64); err != nil || at.Revision <= 0 {
			return at, apierrors.NewBadRequest(fmt.Sprintf("revision %q must be a positive number", given))
		}
	}
	if first := at.After == ""; first != (at.Revision == 0) || first != (at.Data == "") {
		return at, apierrors.NewBadRequest("revision, continue and data must be set together, for all parts except the first")
	}
	return at, nil
}
