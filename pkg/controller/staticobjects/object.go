// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// A refused object is tried again after refusedWait: a policy, a quota or an object with its
// name may be gone.
const refusedWait = 15 * time.Second

// watchedWait is the time until a mirror is read again that its watch has not delivered: if the watch was interrupted,
// the mirror may have been deleted since.
const watchedWait = 5 * time.Second

// Reasons of problems.
const (
	reasonUnknownKind  = "UnknownKind"
	reasonNoNamespace  = "NamespaceMissing"
	reasonNotNow       = "Unavailable"
	reasonBeingDeleted = "BeingDeleted"
	reasonNameTaken    = "NameTaken"
	reasonRefused      = "Refused"
	reasonUnsupported  = "Unsupported"
	reasonScope        = "WrongScope"
	reasonOrder        = "HostedResourceFirst"
	reasonOrphaned     = "Orphaned"
)

// reconcileObject brings the mirror with a name to what the sources have.
func (c *Controller) reconcileObject(ctx context.Context, key staticobjects.Key) (framework.Result, error) {
	object := c.manager.Object(key)
	if object != nil && c.hostedResourceIsFirst(key) {
		return c.wait(key, object, reasonOrder, "its HostedResource is created first")
	}
	t, err := c.resolve(ctx, key, object)
	switch {
	case errors.Is(err, errUnserved) && object == nil:
		c.manager.RemoveMirror(key)
		c.setState(key, state{})
		return framework.Result{}, nil
	case errors.Is(err, errUnserved):
		return c.wait(key, object, reasonUnknownKind, fmt.Sprintf("annex does not serve the kind %s of %s", key.Kind, object.Content.GetAPIVersion()))
	case err != nil:
		return c.fail(key, staticobjects.Decision{Object: object}, err)
	}
	if object != nil {
		if reason, message := c.unsuitable(key, t); reason != "" {
			return c.refuse(key, object, reason, message)
		}
		// Recorded before the first write, so that any leader finds the mirror.
		if err := c.record(ctx, object.Source, t.GroupResource()); err != nil {
			return c.fail(key, staticobjects.Decision{Object: object}, err)
		}
	}
	c.watches.ensure(t)
	return c.act(ctx, key, t)
}

// hostedResourceIsFirst reports whether a definition has to wait for a static HostedResource:
// annex creates one for a definition without.
func (c *Controller) hostedResourceIsFirst(key staticobjects.Key) bool {
	if key.GroupKind() != staticobjects.Definition {
		return false
	}
	hosted := staticobjects.Key{Group: hostingv1alpha1.GroupName, Kind: "HostedResource", Name: key.Name}
	return c.manager.Object(hosted) != nil && c.states.get(hosted).phase == ""
}

func (c *Controller) resolve(ctx context.Context, key staticobjects.Key, object *staticobjects.Object) (target, error) {
	if object != nil {
		return c.resolver.byKind(ctx, object.Content.GroupVersionKind())
	}
	return c.resolver.inGroup(ctx, key.Group, func(t target) bool { return t.kind == key.Kind })
}

// unsuitable returns why an object cannot have a mirror in a resource, if it cannot.
func (c *Controller) unsuitable(key staticobjects.Key, t target) (reason, message string) {
	switch why := c.config.Refused[key.GroupKind()]; {
	case why != "":
		return reasonUnsupported, why
	case !t.manageable:
		return reasonUnsupported, fmt.Sprintf("%s are not objects that can be created, changed and deleted", t.GroupResource())
	case t.namespaced && key.Namespace == "":
		return reasonScope, "metadata.namespace: must be set, the kind is namespaced"
	case !t.namespaced && key.Namespace != "":
		return reasonScope, "metadata.namespace: must not be set, the kind is cluster-scoped"
	}
	return "", ""
}

// act reads the object and does what is decided.
func (c *Controller) act(ctx context.Context, key staticobjects.Key, t target) (framework.Result, error) {
	live, err := framework.IgnoreNotFound(c.client(t, key).Get(ctx, key.Name, metav1.GetOptions{}))
	if err != nil {
		return c.fail(key, staticobjects.Decision{Object: c.manager.Object(key)}, fmt.Errorf("read the object: %w", err))
	}
	var metadata metav1.Object
	if live != nil {
		metadata = live
		c.remember(key, live)
	} else {
		c.manager.RemoveMirror(key)
	}
	d := c.manager.Decide(key, metadata, func(source string) bool { return c.locations[source] != "" })
	switch d.Action {
	case staticobjects.Nothing:
		c.setState(key, state{})
		return framework.Result{}, nil
	case staticobjects.UpToDate:
		c.setApplied(key, d.Object)
	case staticobjects.NameTaken:
		return c.refuse(key, d.Object, reasonNameTaken, "an object with this name exists that is not a mirror; annex does not change it")
	case staticobjects.WaitDeleted:
		return c.waitDeleted(key, t, d)
	case staticobjects.Keep:
		c.setState(key, state{phase: kept, source: d.Mirror.Source})
	case staticobjects.Orphaned:
		c.setState(key, state{phase: orphaned, source: d.Mirror.Source, reason: reasonOrphaned, message: d.Message})
		return framework.Result{}, nil // users may have removed its label, without which it is not watched
	default:
		if err := c.write(ctx, key, t, live, d); err != nil {
			return c.failed(key, t, d, err)
		}
	}
	return c.untilWatched(key, t), nil
}

// untilWatched reads a mirror again as long as its deletion could be missed.
func (c *Controller) untilWatched(key staticobjects.Key, t target) framework.Result {
	if c.watches.has(t, key) {
		return framework.Result{}
	}
	return framework.Result{RequeueAfter: watchedWait}
}

func (c *Controller) remember(key staticobjects.Key, object metav1.Object) {
	if mirror, isMirror := staticobjects.MirrorOf(key, object); isMirror {
		c.manager.SetMirror(mirror)
	} else {
		c.manager.RemoveMirror(key)
	}
}

// failed repeats a failed write at once or later, or records that the object is refused.
func (c *Controller) failed(key staticobjects.Key, t target, d staticobjects.Decision, err error) (framework.Result, error) {
	var status apierrors.APIStatus
	missing := schema.GroupKind{}
	if errors.As(err, &status) && status.Status().Details != nil {
		missing = schema.GroupKind{Group: status.Status().Details.Group, Kind: status.Status().Details.Kind}
	}
	switch {
	case d.Object == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return c.fail(key, d, err)
	case apierrors.IsNotFound(err) && missing == schema.GroupKind{Kind: "namespaces"}:
		return c.wait(key, d.Object, reasonNoNamespace, fmt.Sprintf("the namespace %s does not exist", key.Namespace))
	case apierrors.IsNotFound(err):
		c.resolver.forget(t.Group)
		return c.wait(key, d.Object, reasonUnknownKind, fmt.Sprintf("annex does not serve %s now", t.GroupResource()))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return c.wait(key, d.Object, reasonNoNamespace, fmt.Sprintf("the namespace %s is being deleted", key.Namespace))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err):
		return c.refuse(key, d.Object, reasonRefused, err.Error())
	}
	return c.fail(key, d, err)
}

func (c *Controller) waitDeleted(key staticobjects.Key, t target, d staticobjects.Decision) (framework.Result, error) {
	if d.Object == nil {
		c.setState(key, state{}) // its source wants that
		return c.untilWatched(key, t), nil
	}
	return c.wait(key, d.Object, reasonBeingDeleted, "the mirror is being deleted, and will be created again")
}

// wait tries an object again after a delay that grows. Most waits end with an event that queues it.
func (c *Controller) wait(key staticobjects.Key, object *staticobjects.Object, reason, message string) (framework.Result, error) {
	c.setState(key, state{phase: waiting, source: object.Source, origin: object.Origin, reason: reason, message: message})
	return framework.Result{Backoff: true}, nil
}

func (c *Controller) refuse(key staticobjects.Key, object *staticobjects.Object, reason, message string) (framework.Result, error) {
	c.setState(key, state{phase: refused, source: object.Source, origin: object.Origin, reason: reason, message: message})
	return framework.Result{RequeueAfter: refusedWait}, nil
}

// fail returns an error that the queue tries again after a delay that grows.
func (c *Controller) fail(key staticobjects.Key, d staticobjects.Decision, err error) (framework.Result, error) {
	failed := state{phase: failing, source: d.Mirror.Source, reason: reasonNotNow, message: err.Error()}
	if d.Object != nil {
		failed.source, failed.origin = d.Object.Source, d.Object.Origin
	}
	if failed.source != "" && !apierrors.IsConflict(err) {
		c.setState(key, failed)
	}
	return framework.Result{}, fmt.Errorf("apply %s: %w", key, err)
}

// setApplied also queues what may have waited for the object.
func (c *Controller) setApplied(key staticobjects.Key, object *staticobjects.Object) {
	changed := c.setState(key, state{phase: applied, source: object.Source, origin: object.Origin})
	if changed && key.IsProtected() {
		c.addWhere(func(_ staticobjects.Key, s state) bool { return s.phase == waiting })
	}
}

// setState records the state of an object, and shows it in the StaticSource.
func (c *Controller) setState(key staticobjects.Key, after state) (changed bool) {
	before := c.states.get(key)
	if !c.states.set(key, after) {
		return false
	}
	for _, source := range []string{before.source, after.source} {
		if source != "" {
			c.AddAfter(item{source: source}, statusDelay)
		}
	}
	return true
}
