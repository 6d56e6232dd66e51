// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// collector reconciles the UIDs that the graph queues.
type collector struct {
	graph         *graph
	annexMetadata metadata.Interface
	annexEvents   corev1client.EventsGetter
	informers     *metadatainformers.Informers
	now           func() time.Time
}

// reconcile reads the object from the API each time, so a conflict needs no handling: the
// next reconcile is the retry.
func (c *collector) reconcile(ctx context.Context, uid types.UID) (framework.Result, error) {
	of, known := c.graph.item(uid)
	switch {
	case !known:
		return framework.Result{}, nil
	case of.Object == nil:
		return c.verifyOwner(ctx, uid)
	case !c.graph.mustLook(of):
		return framework.Result{}, nil
	}
	live, err := c.read(ctx, of)
	if err != nil || live == nil {
		// Its deletion causes an event.
		return framework.Result{}, err
	}
	switch {
	case live.DeletionTimestamp == nil:
		return framework.Result{}, c.collect(ctx, of, live)
	case hasFinalizer(live, metav1.FinalizerOrphanDependents):
		return c.orphan(ctx, of, live)
	case hasFinalizer(live, metav1.FinalizerDeleteDependents):
		return c.awaitDependents(ctx, of, live)
	default:
		return framework.Result{}, nil
	}
}

// collect deletes or keeps an object whose owners may be gone. A failure is reported to
// owners that wait for the object.
func (c *collector) collect(ctx context.Context, of item, live *metav1.PartialObjectMetadata) error {
	err := c.collectUnlessOwned(ctx, of, live)
	if err == nil || apierrors.IsConflict(err) || ctx.Err() != nil {
		return err
	}
	for _, owner := range live.OwnerReferences {
		if !blocks(owner) || c.graph.stands(referenceFrom(of.Namespace, owner)) != waiting {
			continue
		}
		if waits, known := c.graph.item(owner.UID); known && waits.Object != nil {
			c.warn(ctx, waits, "DependentRemains", "", fmt.Sprintf("the deletion waits for %s: %v", of.name(), err))
		}
	}
	return err
}

// collectUnlessOwned deletes an object without any owner that keeps it, or removes the
// absent owners if others keep it.
func (c *collector) collectUnlessOwned(ctx context.Context, of item, live *metav1.PartialObjectMetadata) error {
	var keep, drop []metav1.OwnerReference
	ending := false
	missing := map[types.UID]sets.Set[reference]{}
	defer func() {
		for uid, references := range missing {
			c.graph.markAbsent(uid, references)
		}
	}()
	for _, owner := range live.OwnerReferences {
		named := referenceFrom(of.Namespace, owner)
		known := c.graph.stands(named)
		stands, err := c.confirm(ctx, of, named, known)
		if err != nil {
			return err
		}
		switch stands {
		case absent:
			drop = append(drop, owner)
			if known != absent {
				if missing[owner.UID] == nil {
					missing[owner.UID] = sets.New[reference]()
				}
				missing[owner.UID].Insert(named)
			}
		case waiting:
			drop, ending = append(drop, owner), true
		default:
			keep = append(keep, owner)
		}
	}
	switch {
	case len(drop) == 0:
		return nil
	case len(keep) > 0:
		klog.FromContext(ctx).V(2).Info("Removing owners that are gone from an object that others own", "object", of.name())
		return c.patchOwners(ctx, of, live, keep)
	default:
		return c.delete(ctx, of, live, c.propagation(of, live, ending))
	}
}

// confirm reads an owner of an object from the API, unless it is known to be absent: that was
// read from the API too, and a UID never returns unobserved.
func (c *collector) confirm(ctx context.Context, of item, named reference, stands standing) (standing, error) {
	if stands == present || stands == absent {
		return stands, nil
	}
	verdict, err := c.look(ctx, named)
	switch {
	case err != nil:
		return unsure, err
	case verdict == missing:
		c.reportNamespace(ctx, of, named)
		return absent, nil
	case verdict == ending:
		return waiting, nil
	case verdict == unresolved:
		c.reportNamespace(ctx, of, named)
		return unsure, nil
	default:
		return present, nil
	}
}

// propagation returns the deletion policy of an object's own finalizers, and foreground
// if an owner waits for the object and it may have dependents.
func (c *collector) propagation(of item, live *metav1.PartialObjectMetadata, ending bool) metav1.DeletionPropagation {
	switch {
	case ending && (c.graph.hasDependents(of) || len(c.hidden(of)) > 0):
		return metav1.DeletePropagationForeground
	case hasFinalizer(live, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case hasFinalizer(live, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

// read returns an object from the API, or nil if it is gone.
func (c *collector) read(ctx context.Context, of item) (*metav1.PartialObjectMetadata, error) {
	live, err := c.of(of).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", of.name(), err)
	case live.UID != of.UID:
		return nil, nil
	default:
		return live, nil
	}
}

// delete deletes exactly the object that was read.
func (c *collector) delete(ctx context.Context, of item, live *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	klog.FromContext(ctx).V(2).Info("Deleting an object whose owners are gone", "object", of.name(), "propagation", propagation)
	err := c.of(of).Delete(ctx, of.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion},
		PropagationPolicy: &propagation,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", of.name(), err)
	}
	deletions.Inc()
	return nil
}

// of returns the client of an object's resource and namespace.
func (c *collector) of(of item) metadata.ResourceInterface {
	return c.annexMetadata.Resource(of.GroupVersionResource).Namespace(of.Namespace)
}

// name identifies the object in logs and errors.
func (i item) name() string {
	return fmt.Sprintf("%s %s", i.GroupResource(), klog.KRef(i.Namespace, i.Name))
}

func hasFinalizer(object *metav1.PartialObjectMetadata, finalizer string) bool {
	return slices.Contains(object.Finalizers, finalizer)
}

// metadataPatch is a merge patch, which every kind accepts, of one list of exactly the
// object that was read.
type metadataPatch struct {
	Metadata struct {
		UID             types.UID                `json:"uid"`
		ResourceVersion string                   `json:"resourceVersion"`
		Owners          *[]metav1.OwnerReference `json:"ownerReferences,omitempty"`
		Finalizers      *[]string                `json:"finalizers,omitempty"`
	} `json:"metadata"`
}

// patchOwners replaces the owners of an object.
func (c *collector) patchOwners(ctx context.Context, of item, live *metav1.PartialObjectMetadata, owners []metav1.OwnerReference) error {
	var patch metadataPatch
	patch.Metadata.Owners = &owners
	if err := c.patch(ctx, of, live, patch); err != nil {
		return fmt.Errorf("write the owners of %s: %w", of.name(), err)
	}
	return nil
}

func (c *collector) removeFinalizer(ctx context.Context, of item, live *metav1.PartialObjectMetadata, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(live.Finalizers), func(name string) bool { return name == finalizer })
	var patch metadataPatch
	patch.Metadata.Finalizers = &left
	if err := c.patch(ctx, of, live, patch); err != nil {
		return fmt.Errorf("remove the finalizer %s of %s: %w", finalizer, of.name(), err)
	}
	return nil
}

func (c *collector) patch(ctx context.Context, of item, live *metav1.PartialObjectMetadata, patch metadataPatch) error {
	patch.Metadata.UID, patch.Metadata.ResourceVersion = live.UID, live.ResourceVersion
	content, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = c.of(of).Patch(ctx, of.Name, types.MergePatchType, content, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

const (
	// component is the source of events, as in Kubernetes.
	component = "garbage-collector-controller"
	// maxMessage bounds the message of an event.
	maxMessage = 1024
)

// warn records an event about an object, once for each object, reason and cause: its name
// is derived from them.
func (c *collector) warn(ctx context.Context, about item, reason, cause, message string) {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	sum := sha256.Sum256([]byte(string(about.UID) + "/" + reason + "/" + cause))
	now := metav1.NewTime(c.now())
	message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	_, err := c.annexEvents.Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "garbage-collector-" + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: about.GroupVersion().String(), Kind: about.Kind,
			Namespace: about.Namespace, Name: about.Name, UID: about.UID,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		klog.FromContext(ctx).V(2).Info("An event could not be recorded", "err", err)
	}
}
