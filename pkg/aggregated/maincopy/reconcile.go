// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

const (
	// attempts bounds the comparisons of a key after concurrent writes.
	attempts = 5

	// maxGenerations is by how much a generation is raised at most.
	maxGenerations = 10_000

	// generationField makes two contents differ, so that the API server counts a generation.
	generationField = "annexGeneration"
)

var errChanged = errors.New("the main cluster stored a different object: " +
	"a mutating webhook or policy changed it, or annex's copy is stale")

// compareAndWrite makes the object of the main cluster equal to annex's.
func (t *target) compareAndWrite(ctx context.Context, namespace, name string) error {
	inAnnex, err := find(ctx, t.copy.annex.Resource(t.resource.Stored).Namespace(namespace), name)
	if err != nil {
		return fmt.Errorf("read it in annex: %w", err)
	}
	inMain, err := find(ctx, t.mainObjects(namespace), name)
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if inAnnex != nil {
		t.waitForOwners(inAnnex)
	}
	return t.makeSame(ctx, inAnnex, inMain)
}

// makeSame writes what differs between two objects as they were read. Either may be nil.
func (t *target) makeSame(ctx context.Context, inAnnex, inMain *unstructured.Unstructured) (err error) {
	// A process that was paused between the reads has one side as it was before its successor's writes.
	if err := t.copy.check(ctx); err != nil {
		return err
	}
	if inMain != nil && (inAnnex == nil || !t.isFor(inMain, inAnnex) || isTerminating(inMain) && !isTerminating(inAnnex)) {
		if err := t.remove(ctx, inMain); err != nil {
			return err
		}
		inMain = nil
	}
	if inAnnex == nil {
		return nil
	}
	if inMain == nil {
		if inMain, err = t.put(ctx, inAnnex, nil); err != nil {
			return err
		}
	}
	return t.update(ctx, inAnnex, inMain)
}

// find returns nil for an object that does not exist. A resource that is not served is an error.
func find(ctx context.Context, objects dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	found, err := objects.Get(ctx, name, metav1.GetOptions{})
	if isMissing(err) {
		return nil, nil
	}
	return found, err
}

// isUnserved reports whether the API server does not serve the resource. Its response to an
// object that does not exist is a Status, which has no such cause.
func isUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isMissing reports whether an object does not exist. Admission answers 404 for its namespace, too: the
// object may be there.
func isMissing(err error) bool {
	return apierrors.IsNotFound(err) && !isUnserved(err) && !isNamespaceMissing(err)
}

// remove deletes an object without running its finalizers.
func (t *target) remove(ctx context.Context, object *unstructured.Unstructured) error {
	defer t.written.Add(1)
	err := removeObject(ctx, t.mainObjects(object.GetNamespace()), object)
	if isNamespaceMissing(err) {
		err = errors.Join(errStale, err)
	}
	return err
}

func removeObject(ctx context.Context, objects dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	if len(object.GetFinalizers()) > 0 {
		stripped := object.DeepCopy()
		stripped.SetFinalizers(nil)
		if _, err := objects.Update(ctx, stripped, metav1.UpdateOptions{}); err != nil && !isMissing(err) {
			return fmt.Errorf("remove its finalizers: %w", err)
		}
	}
	// The UID is a precondition, so a conflict means that it is another object.
	err := objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: new(object.GetUID())},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil && !isMissing(err) {
		return fmt.Errorf("delete it: %w", err)
	}
	return nil
}

// update writes what differs between the objects. main is the object as it was last read or
// written.
func (t *target) update(ctx context.Context, annex, main *unstructured.Unstructured) error {
	main, err := t.raiseGeneration(ctx, annex, main)
	if err != nil {
		return err
	}
	same, err := sameContent(annex, main, t.pairs.inMain)
	if err == nil && !same {
		if main, err = t.put(ctx, annex, main); err == nil {
			err = compareWritten(annex, main, t.pairs.inMain)
		}
	}
	if err != nil {
		return err
	}
	if isTerminating(annex) && !isTerminating(main) {
		if main, err = t.terminate(ctx, main); err != nil {
			return err
		}
	}
	if newer, err := isNewer(main, annex); err != nil {
		return err
	} else if !newer {
		return t.makeNewer(ctx, annex, main)
	}
	same, err = sameManagedFields(annex, main, t.pairs.inMain)
	if err != nil || same {
		return err
	}
	// The previous write made annex a manager of what it changed. One that changes no other field
	// sets them exactly.
	if _, err := t.put(ctx, annex, main); err != nil {
		return fmt.Errorf("set its managedFields: %w", err)
	}
	return nil
}

// put creates or updates the object of the main cluster, which is nil or as it was last read or written.
func (t *target) put(ctx context.Context, annex, main *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted, err := forMain(annex, main, t.pairs.inMain)
	if err != nil {
		return nil, err
	}
	if main != nil {
		if main, err = t.mainObjects(annex.GetNamespace()).Update(ctx, wanted, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("update it: %w", err)
		}
		t.written.Add(1)
		return main, nil
	}
	if main, err = t.mainObjects(annex.GetNamespace()).Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create it: %w", err)
	}
	t.written.Add(1)
	// An object that is not recorded, because the process ended here, is deleted and created again.
	return main, t.pairs.record(ctx, t.annex, annex, main.GetUID())
}

// raiseGeneration writes an object until one more write gives it annex's generation. Otherwise a
// status.observedGeneration from annex would be ahead of it, and controllers would take
// later changes as handled.
func (t *target) raiseGeneration(ctx context.Context, annex, main *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	missing := annex.GetGeneration() - main.GetGeneration()
	if missing <= 0 || missing > maxGenerations {
		return main, nil
	}
	writes := missing - 1
	same, err := sameContent(annex, main, t.pairs.inMain)
	if err != nil {
		return nil, err
	}
	if same {
		writes = max(writes, 1) // the last write needs a difference, so two more generations are the price
	}
	for n := range writes {
		written := main.DeepCopy()
		written.Object[generationField] = fmt.Sprint(annex.GetGeneration(), n)
		if main, err = t.mainObjects(annex.GetNamespace()).Update(ctx, written, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("raise its generation: %w", err)
		}
	}
	return main, nil
}

// terminate deletes an object whose finalizers keep it terminating. Without a propagation policy, the
// finalizers of the garbage collector stay, too.
func (t *target) terminate(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	objects := t.mainObjects(object.GetNamespace())
	err := objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(object.GetUID())}})
	if err != nil {
		return nil, fmt.Errorf("delete it like in annex: %w", err)
	}
	t.written.Add(1)
	terminating, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	return terminating, nil
}

// isFor reports whether an object of the main cluster is the same one as in annex, or was
// created for it.
func (t *target) isFor(main, annex *unstructured.Unstructured) bool {
	return main.GetUID() == annex.GetUID() || t.pairs.isPair(annex, main)
}

// waitForOwners makes an object be compared again when the UID of an owner in its group changes.
func (t *target) waitForOwners(annex *unstructured.Unstructured) {
	for _, reference := range annex.GetOwnerReferences() {
		if owner, inGroup := t.pairs.owner(annex.GetNamespace(), reference); inGroup {
			t.pairs.wait(owner.uid, waiter{t.syncer, keyOf(annex)})
		}
	}
}
