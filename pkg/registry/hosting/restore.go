// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

// maxPart bounds the memory of a request. Parts have a few MiB, unless one object is
// larger.
const maxPart = 64 << 20

// restore returns stores/restore, which restores a part of a backup of a resource to a Store.
func (b backups) restore() postREST {
	return postREST{newStore, func(ctx context.Context, name string, responder rest.Responder) (http.Handler, error) {
		if _, err := b.stores.Get(ctx, name, &metav1.GetOptions{}); err != nil {
			return nil, err
		}
		target, err := b.backend.Target(name)
		if err != nil {
			return nil, err
		}
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			result, err := b.restorePart(name, target, w, req)
			if err != nil {
				responder.Error(explain(err))
				return
			}
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_ = json.NewEncoder(w).Encode(result)
		}), nil
	}}
}

func (b backups) restorePart(store string, target *backup.Target, w http.ResponseWriter, req *http.Request) (backup.Result, error) {
	query := req.URL.Query()
	options, err := readOptions(query)
	if err != nil {
		return backup.Result{}, err
	}
	resource := schema.ParseGroupResource(query.Get("resource"))
	// A group without a dot would share keys with kinds of Kubernetes, such as Secrets.
	if !strings.Contains(resource.Group, ".") || resource.Resource == "" {
		return backup.Result{}, apierrors.NewBadRequest(fmt.Sprintf("resource %q must be PLURAL.GROUP, with a dot in GROUP", query.Get("resource")))
	}
	if err := b.mayWrite(req.Context(), resource.String(), store); err != nil {
		return backup.Result{}, err
	}
	return target.Restore(req.Context(), resource, http.MaxBytesReader(w, req.Body, maxPart), options)
}

// readOptions parses parameters. It is check, not dryRun, which the server refuses for
// connect endpoints.
func readOptions(query url.Values) (backup.Options, error) {
	for _, name := range []string{"check", "skipUnreadable"} {
		if given := query.Get(name); given != "" && given != "true" {
			return backup.Options{}, apierrors.NewBadRequest(fmt.Sprintf("%s %q must be true if set", name, given))
		}
	}
	return backup.Options{Check: query.Get("check") == "true", SkipUnreadable: query.Get("skipUnreadable") == "true"}, nil
}

// ownGroups are groups of annex itself with keys of the same form.
var ownGroups = sets.New(v1alpha1.GroupName, "apiextensions.k8s.io", "apiregistration.k8s.io")

var errServed = errors.New("the resource is served: delete its CustomResourceDefinition first, a backup is not merged with existing objects")

// mayWrite checks that the resource is not served and not placed on another Store. It
// reads the storage, not a cache.
func (b backups) mayWrite(ctx context.Context, name, store string) error {
	if ownGroups.Has(schema.ParseGroupResource(name).Group) {
		return apierrors.NewBadRequest(name + " belongs to annex itself: restore it with the whole Store default, while annex is stopped")
	}
	if defined, err := b.backend.Defined(ctx, name); err != nil {
		return err
	} else if defined {
		return apierrors.NewConflict(v1alpha1.Resource("hostedresources"), name, errServed)
	}
	found, err := b.resources.Get(ctx, name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	hosted := found.(*v1alpha1.HostedResource)
	switch {
	case hosted.Status.DefinitionUID != "" || hosted.Status.Phase != v1alpha1.HostedResourcePending:
		return apierrors.NewConflict(v1alpha1.Resource("hostedresources"), name, errServed)
	case slices.Contains(hosted.Finalizers, v1alpha1.MigrationFinalizer):
		return apierrors.NewConflict(v1alpha1.Resource("hostedresources"), name, errors.New("a Migration moves it: wait for the Migration, or delete it"))
	case hosted.Spec.StoreName != "" && hosted.Spec.StoreName != store:
		return apierrors.NewConflict(v1alpha1.Resource("hostedresources"), name, fmt.Errorf("its Store is %q", hosted.Spec.StoreName))
	}
	return nil
}

// explain converts an error to an API error that clients can handle.
func explain(err error) error {
	var status apierrors.APIStatus
	var tooLarge *http.MaxBytesError
	var refused *backup.WriteError
	switch {
	case errors.As(err, &status):
		return err
	case errors.As(err, &tooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a part of a backup has at most %d bytes", tooLarge.Limit))
	case errors.As(err, &refused) && objectsize.RefusedByEtcd(refused.Err):
		return apierrors.NewRequestEntityTooLargeError(err.Error() + ": it does not fit into a request to the etcd of the Store (its --max-request-bytes, 1.5 MiB by default)")
	case errors.Is(err, backup.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.Is(err, backup.ErrCompacted):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, backup.ErrConflict), errors.Is(err, backup.ErrReplaced):
		return failed(http.StatusConflict, metav1.StatusReasonConflict, err)
	case errors.Is(err, backup.ErrUnreadable):
		return failed(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
	case errors.Is(err, backup.ErrTruncated), errors.Is(err, backup.ErrDamaged), errors.Is(err, backup.ErrNotBackup),
		errors.Is(err, backup.ErrNewer), errors.Is(err, backup.ErrPosition):
		return apierrors.NewBadRequest(err.Error())
	}
	return apierrors.NewInternalError(err)
}

func failed(code int32, reason metav1.StatusReason, err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error(),
	}}
}
