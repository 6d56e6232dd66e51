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
	"k8s.io/utils/ptr"
)

const (
	// attempts is how often a key is compared again at once, after a concurrent write.
	attempts = 5

	// maxGenerations is by how much a generation is raised at most.
	maxGenerations = 10_000

	// generationField makes two contents differ, so that the API server counts a generation.
	generationField = "annexGeneration"
)

// errChanged is a write that is stored differently.
var errChanged = errors.New("the main cluster stores something else than what annex has: " +
	"a mutating webhook or policy of the main cluster changes it, or what annex read is outdated by now")

// reconcile makes the object of the main cluster equal to that of annex.
func (s *Syncer) reconcile(ctx context.Context, k key) error {
	var err error
	for range attempts {
		err = s.compareAndWrite(ctx, k)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !isMissing(err) {
			return err
		}
	}
	return err
}

func (s *Syncer) compareAndWrite(ctx context.Context, k key) error {
	inAnnex, err := find(ctx, s.annexObjects(k.namespace), k.name)
	if err != nil {
		return fmt.Errorf("read it in annex: %w", err)
	}
	inMain, err := find(ctx, s.mainObjects(k.namespace), k.name)
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if inAnnex != nil {
		s.waitForOwners(inAnnex)
	}
	if inMain != nil && (inAnnex == nil || !s.isFor(inMain, inAnnex) || isTerminating(inMain) && !isTerminating(inAnnex)) {
		if err := s.remove(ctx, inMain); err != nil {
			return err
		}
		inMain = nil
	}
	if inAnnex == nil {
		return nil
	}
	if inMain == nil {
		if inMain, err = s.create(ctx, inAnnex); err != nil {
			return err
		}
	}
	return s.update(ctx, inAnnex, inMain)
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
func (s *Syncer) remove(ctx context.Context, object *unstructured.Unstructured) error {
	defer s.wrote()
	err := removeObject(ctx, s.mainObjects(object.GetNamespace()), object)
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
		Preconditions:     &metav1.Preconditions{UID: ptr.To(object.GetUID())},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil && !isMissing(err) {
		return fmt.Errorf("delete it: %w", err)
	}
	return nil
}

func (s *Syncer) create(ctx context.Context, annex *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted, err := forMain(annex, nil, s.pairs.inMain)
	if err != nil {
		return nil, err
	}
	created, err := s.mainObjects(annex.GetNamespace()).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create it: %w", err)
	}
	s.wrote()
	// An object that is not recorded, because the process ended here, is deleted and created again.
	return created, s.pairs.record(ctx, s.annex, annex, created.GetUID())
}

// update writes what differs between the objects. main is the object as it was last read or
// written.
func (s *Syncer) update(ctx context.Context, annex, main *unstructured.Unstructured) error {
	main, err := s.raiseGeneration(ctx, annex, main)
	if err != nil {
		return err
	}
	same, err := sameContent(annex, main, s.pairs.inMain)
	if err != nil {
		return err
	}
	if !same {
		if main, err = s.put(ctx, annex, main); err != nil {
			return err
		}
		if same, err = sameContent(annex, main, s.pairs.inMain); err != nil {
			return err
		}
		if !same {
			return changed(annex, main, s.pairs.inMain)
		}
	}
	if isTerminating(annex) && !isTerminating(main) {
		if main, err = s.terminate(ctx, main); err != nil {
			return err
		}
	}
	if newer, err := isNewer(main, annex); err != nil {
		return err
	} else if !newer {
		return s.makeNewer(ctx, annex, main)
	}
	same, err = sameManagedFields(annex, main, s.pairs.inMain)
	if err != nil || same {
		return err
	}
	// The previous write made annex a manager of what it changed. One that changes no other field
	// sets them exactly.
	if _, err := s.put(ctx, annex, main); err != nil {
		return fmt.Errorf("set its managedFields: %w", err)
	}
	return nil
}

func (s *Syncer) put(ctx context.Context, annex, main *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted, err := forMain(annex, main, s.pairs.inMain)
	if err != nil {
		return nil, err
	}
	written, err := s.mainObjects(annex.GetNamespace()).Update(ctx, wanted, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update it: %w", err)
	}
	s.wrote()
	return written, nil
}

// raiseGeneration writes an object until one more write gives it annex's generation. Otherwise a
// status.observedGeneration from annex would be ahead of it, and controllers would take
// later changes as handled.
func (s *Syncer) raiseGeneration(ctx context.Context, annex, main *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	missing := annex.GetGeneration() - main.GetGeneration()
	if missing <= 0 || missing > maxGenerations {
		return main, nil
	}
	for n := range missing - 1 {
		written := main.DeepCopy()
		written.Object[generationField] = fmt.Sprint(annex.GetGeneration(), n)
		var err error
		if main, err = s.mainObjects(annex.GetNamespace()).Update(ctx, written, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("raise its generation: %w", err)
		}
	}
	if same, err := sameContent(annex, main, s.pairs.inMain); err != nil || !same {
		return main, err
	}
	// The content is already the same, so two more generations are the price.
	written := main.DeepCopy()
	written.Object[generationField] = "last"
	main, err := s.mainObjects(annex.GetNamespace()).Update(ctx, written, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("raise its generation: %w", err)
	}
	return main, nil
}

// terminate deletes an object that keeps its finalizers. Without a policy those of the garbage
// collector stay, too.
func (s *Syncer) terminate(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	objects := s.mainObjects(object.GetNamespace())
	err := objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(object.GetUID())}})
	if err != nil {
		return nil, fmt.Errorf("delete it like in annex: %w", err)
	}
	s.wrote()
	terminating, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	return terminating, nil
}

// isFor reports whether an object of the main cluster is the same one as in annex, or was
// created for it.
func (s *Syncer) isFor(main, annex *unstructured.Unstructured) bool {
	return main.GetUID() == annex.GetUID() || s.pairs.isPair(annex, main)
}

// waitForOwners makes an object be compared again when the UID of an owner in its group changes.
func (s *Syncer) waitForOwners(annex *unstructured.Unstructured) {
	for _, owner := range annex.GetOwnerReferences() {
		if s.resource.inGroup(owner) {
			s.pairs.wait(owner.UID, waiter{s.queue, keyOf(annex)})
		}
	}
}
