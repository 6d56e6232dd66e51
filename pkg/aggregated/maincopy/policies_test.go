// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"strconv"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// newPolicies returns a Copy whose API server sets resource versions, except in updates that change nothing, and compares
// them in updates and deletions.
func newPolicies(t *testing.T) *Copy {
	t.Helper()
	kube := fake.NewClientset()
	version := 0
	kube.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var object metav1.Object
		var name, at string
		switch action := action.(type) {
		case clienttesting.DeleteActionImpl:
			name = action.Name
			if conditions := action.DeleteOptions.Preconditions; conditions != nil {
				at = ptr.Deref(conditions.ResourceVersion, "")
			}
		case clienttesting.CreateAction: // an update is one, too
			accessor, err := meta.Accessor(action.GetObject())
			expect.NoError(t, err)
			object, name, at = accessor, accessor.GetName(), accessor.GetResourceVersion()
		default:
			return false, nil, nil
		}
		if stored, err := kube.Tracker().Get(action.GetResource(), "", name); err == nil && action.GetVerb() != "create" {
			current, err := meta.Accessor(stored)
			expect.NoError(t, err)
			if at != "" && at != current.GetResourceVersion() {
				return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), name, nil)
			}
			current.SetManagedFields(nil)                                         // the fake's own
			stored.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // the same
			if object != nil && equality.Semantic.DeepEqual(object, stored) {
				return true, stored, nil
			}
		}
		if object != nil {
			version++
			object.SetResourceVersion(strconv.Itoa(version))
		}
		return false, nil, nil
	})
	return &Copy{kube: kube}
}

// stored returns the policy of a name if it is bound, else nil.
func (c *Copy) stored(t *testing.T, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	v1 := c.kube.AdmissionregistrationV1()
	if _, err := v1.ValidatingAdmissionPolicyBindings().Get(t.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil
	}
	policy, err := v1.ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	expect.NoError(t, err)
	return policy
}

// TestPausedLeader pauses a leader between a check and the write after it, until its successor has done the opposite.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	whole := copyPolicy("example.com", "annex")
	apply := func(p policy) func(context.Context, *Copy) error {
		return func(ctx context.Context, c *Copy) error { return c.apply(ctx, p) }
	}
	remove := func(ctx context.Context, c *Copy) error { return c.remove(ctx, whole.name) }
	nothing := func(context.Context, *Copy) error { return nil }
	for name, tc := range map[string]struct {
		before, paused, successor func(context.Context, *Copy) error
		// wanted is set if the policy has to be in force at the end.
		wanted bool
	}{
		"it removes what is applied again": {apply(whole), remove, apply(whole), true},
		"it exempts what is whole again":   {apply(whole), apply(whole.exempting(widgets, sets.New("a"))), apply(whole), true},
		"it applies another user's":        {nothing, apply(copyPolicy("example.com", "other")), apply(whole), true},
		"it applies what is removed":       {nothing, apply(whole), remove, false},
		"it corrects what is removed":      {apply(copyPolicy("example.com", "other")), apply(whole), remove, false},
		"it applies what is replaced":      {apply(copyPolicy("example.com", "other")), nothing, apply(whole), true},
	} {
		for pausedAt := 1; pausedAt <= 2; pausedAt++ {
			t.Run(name+" at "+strconv.Itoa(pausedAt), func(t *testing.T) {
				t.Parallel()
				c := newPolicies(t)
				ctx, always := t.Context(), func(context.Context) error { return nil }
				expect.NoError(t, tc.before(ctx, c.Fenced(always)))
				checks, replaced := 0, errors.New("another process has continued the migration")
				err := tc.paused(ctx, c.Fenced(func(context.Context) error {
					checks++
					switch {
					case checks > pausedAt:
						return replaced
					case checks == pausedAt:
						return tc.successor(ctx, c.Fenced(always))
					}
					return nil
				}))
				if err != nil && !errors.Is(err, replaced) {
					t.Error(err)
				}
				if checks < pausedAt {
					expect.NoError(t, tc.successor(ctx, c.Fenced(always)))
				}
				got := c.stored(t, whole.name)
				if (got != nil) != tc.wanted {
					t.Fatalf("the policy is in force: %t, want %t (%v)", got != nil, tc.wanted, err)
				}
				if policy, _ := whole.objects(); tc.wanted {
					expect.Equal(t, policy.Spec, got.Spec)
				}
			})
		}
	}
}

func newDefinition(group string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets." + group}, "spec": map[string]any{"group": group},
	}}
}

// TestForgetUndefined keeps the policy of a group that annex defines again.
func TestForgetUndefined(t *testing.T) {
	t.Parallel()
	for group, defined := range map[string]bool{"example.com": true, "other.example.com": false} {
		c := newPolicies(t)
		c.annex = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{definitionsResource: "CustomResourceDefinitionList"}, newDefinition(group))
		frozen := freezePolicy("example.com", "annex")
		expect.NoError(t, c.Fenced(func(context.Context) error { return nil }).apply(t.Context(), frozen))
		err := c.ForgetUndefined(t.Context(), "example.com")
		if (err != nil) != defined || (c.stored(t, frozen.name) != nil) != defined {
			t.Errorf("annex defines %s: the policy is %v (%v)", group, c.stored(t, frozen.name), err)
		}
	}
}

// TestMayFreeze takes only answers that follow the check of a right for a right.
func TestMayFreeze(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}
	for name, tc := range map[string]struct {
		answer  error
		refused bool
	}{
		"accepted":         {nil, false},
		"already frozen":   {apierrors.NewAlreadyExists(resource, "p"), false},
		"forbidden":        {apierrors.NewForbidden(resource, "p", nil), true},
		"no answer":        {errors.New("connection refused"), true},
		"too many":         {apierrors.NewTooManyRequestsError("later"), true},
		"an unknown error": {apierrors.NewInternalError(errors.New("webhook failed")), true},
	} {
		for _, verb := range []string{"create validatingadmissionpolicies", "create validatingadmissionpolicybindings", "update customresourcedefinitions"} {
			t.Run(name+" to "+verb, func(t *testing.T) {
				t.Parallel()
				c, crd := newPolicies(t), newDefinition("example.com")
				scheme := metadatafake.NewTestScheme()
				expect.NoError(t, metav1.AddMetaToScheme(scheme))
				c.metadata = metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
					TypeMeta: metav1.TypeMeta{APIVersion: crd.GetAPIVersion(), Kind: crd.GetKind()}, ObjectMeta: metav1.ObjectMeta{Name: crd.GetName()},
				})
				c.definitions = apiextensionsfake.NewClientset(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.GetName()}}).
					ApiextensionsV1().CustomResourceDefinitions()
				objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{definitionsResource: "CustomResourceDefinitionList"}, crd)
				c.objects = objects
				answer := func(action clienttesting.Action) (bool, runtime.Object, error) {
					return action.GetVerb()+" "+action.GetResource().Resource == verb && tc.answer != nil, nil, tc.answer
				}
				c.kube.(*fake.Clientset).PrependReactor("*", "*", answer)
				objects.PrependReactor("*", "*", answer)
				if err := c.MayFreeze(t.Context(), "example.com"); (err != nil) != tc.refused || (tc.refused && !errors.Is(err, tc.answer)) {
					t.Errorf("got %v, want an error: %t", err, tc.refused)
				}
			})
		}
	}
}
