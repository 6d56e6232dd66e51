// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// family is a set of objects that own each other, with a model of them: the UIDs of the
// owners of each.
type family struct {
	members []*testObject
	owners  map[types.UID][]types.UID
}

// newFamily creates objects of two kinds, each owned by some of the previous ones.
func newFamily(t *testing.T, widgets *resource, random *rand.Rand, name string) *family {
	t.Helper()
	f := &family{owners: map[types.UID][]types.UID{}}
	for i := range 8 {
		var changes []change
		var owners []types.UID
		for _, owner := range f.members {
			if random.IntN(3) > 0 {
				continue
			}
			owners = append(owners, owner.meta.UID)
			if random.IntN(2) == 0 {
				changes = append(changes, ownedBy(owner))
			} else {
				changes = append(changes, ownedWithoutBlocking(owner))
			}
		}
		var member *testObject
		if name := fmt.Sprintf("%s-%d", name, i); random.IntN(2) == 0 {
			member = widgets.own(t, name, changes...)
		} else {
			member = widgets.annex.configMap(t, widgets.namespace, name, changes...)
		}
		f.members = append(f.members, member)
		f.owners[member.meta.UID] = owners
	}
	return f
}

// delete deletes a member, and updates the model: dependents without any owner left are
// deleted, others lose the reference.
func (f *family) delete(t *testing.T, random *rand.Rand) (what string) {
	t.Helper()
	var left []*testObject
	for _, member := range f.members {
		if _, alive := f.owners[member.meta.UID]; alive {
			left = append(left, member)
		}
	}
	if len(left) == 0 {
		return ""
	}
	member := left[random.IntN(len(left))]
	propagation := []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	}[random.IntN(3)]
	member.delete(t, propagation)
	if propagation == metav1.DeletePropagationOrphan {
		for uid, owners := range f.owners {
			f.owners[uid] = slices.DeleteFunc(owners, func(owner types.UID) bool { return owner == member.meta.UID })
		}
	}
	delete(f.owners, member.meta.UID)
	for changed := true; changed; {
		changed = false
		for uid, owners := range f.owners {
			if len(owners) > 0 && !slices.ContainsFunc(owners, f.has) {
				delete(f.owners, uid)
				changed = true
			}
		}
	}
	for uid, owners := range f.owners {
		f.owners[uid] = slices.DeleteFunc(owners, func(owner types.UID) bool { return !f.has(owner) })
	}
	return fmt.Sprintf("%s deleted (%s); ", member, propagation)
}

func (f *family) has(uid types.UID) bool {
	_, alive := f.owners[uid]
	return alive
}

// difference returns the members that differ from the model.
func (f *family) difference(t *testing.T) (problem string) {
	t.Helper()
	for _, member := range f.members {
		live, want := member.live(t), f.owners[member.meta.UID]
		if there := live != nil; there != f.has(member.meta.UID) {
			problem += fmt.Sprintf("%s there: %t; ", member, there)
		} else if there && !slices.EqualFunc(live.OwnerReferences, want, func(ref metav1.OwnerReference, uid types.UID) bool { return ref.UID == uid }) {
			problem += fmt.Sprintf("%s has the owners %v, not %v; ", member, live.OwnerReferences, want)
		}
	}
	return problem
}

// TestGarbageCollectionMatchesModel deletes random members of random families, and compares
// the remaining ones with the model.
func TestGarbageCollectionMatchesModel(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	families := make([]*family, 12)
	history := make([]string, len(families))
	for i := range families {
		families[i] = newFamily(t, widgets, random, fmt.Sprintf("family-%d", i))
	}
	for range 3 {
		for i, f := range families {
			history[i] += f.delete(t, random)
		}
		for i, f := range families {
			poll.Until(t, fmt.Sprintf("seed %d: family %d agrees after: %s", seed, i, history[i]), func() string { return f.difference(t) })
		}
	}
	a.waitForGarbageCollector(t, widgets.namespace)
	for i, f := range families {
		if problem := f.difference(t); problem != "" {
			t.Errorf("seed %d: family %d in the end: %s after: %s", seed, i, problem, history[i])
		}
	}
}
