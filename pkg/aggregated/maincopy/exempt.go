// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Exempt exempts annex from the webhooks and policies of the main cluster that apply to its writes of a
// group. It can be called again, and corrects what other clients have reverted meanwhile.
func (c *Copy) Exempt(ctx context.Context, group string) error {
	user, resources, err := c.written(ctx, group)
	if err != nil {
		return err
	}
	return mainadmission.Exempt(ctx, c.kube, group, mainadmission.Account(user), resources, c.check)
}

// EndExemption undoes Exempt.
func (c *Copy) EndExemption(ctx context.Context, group string) error {
	return mainadmission.End(ctx, c.kube, group, c.check)
}

// Hooks returns the webhooks and policies that Exempt exempts annex from.
func (c *Copy) Hooks(ctx context.Context, group string) ([]mainadmission.Match, error) {
	user, resources, err := c.written(ctx, group)
	if err != nil {
		return nil, err
	}
	hooks, err := mainadmission.Read(ctx, c.kube)
	if err != nil {
		return nil, fmt.Errorf("read the webhooks and policies of the main cluster: %w", err)
	}
	return mainadmission.Matching(hooks, mainadmission.Account(user), resources), nil
}

// written returns annex's user name, and the resources of a group.
func (c *Copy) written(ctx context.Context, group string) (user string, resources []mainadmission.Resource, err error) {
	if user, err = c.userName(ctx); err != nil {
		return "", nil, err
	}
	definitions, err := c.Definitions(ctx, group)
	for _, definition := range definitions {
		resources = append(resources, admittedResource(definition))
	}
	return user, resources, err
}

// admittedResource returns the resource of a definition with its kind, scope and served versions, which admission matches.
func admittedResource(definition *apiextensionsv1.CustomResourceDefinition) mainadmission.Resource {
	of := ResourceOf(definition)
	admitted := mainadmission.Resource{GroupResource: of.Stored.GroupResource(), Kind: of.Kind, Namespaced: of.Namespaced}
	for _, version := range definition.Spec.Versions {
		if version.Served {
			admitted.Versions = append(admitted.Versions, version.Name)
		}
	}
	return admitted
}

// IsChanged reports whether the main cluster stored a different object than a Syncer wrote.
func IsChanged(err error) bool { return errors.Is(err, errChanged) }

// IsDenied reports whether a webhook or policy refused a request, or did not respond. The texts are
// kube-apiserver's: its errors have no other mark.
func IsDenied(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, `admission webhook "`) || strings.Contains(text, `calling webhook "`) || strings.Contains(text, " denied request: ")
}

// Probe writes an object of annex to the copy as a dry run, in the ways of a Syncer. It returns what
// refuses or changes it. The copy has to be open.
func (c *Copy) Probe(ctx context.Context, of Resource) error {
	page, err := c.annex.Resource(of.Stored).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	annex := &page.Items[0]
	objects := c.objects.Resource(of.Opened()).Namespace(annex.GetNamespace())
	main, err := find(ctx, objects, annex.GetName())
	if err != nil {
		return fmt.Errorf("read %s: %w", keyOf(annex), err)
	}
	if main != nil && main.GetUID() == annex.GetUID() {
		wanted, err := forMain(annex, main, sameUID)
		if err != nil {
			return err
		}
		written, err := objects.Update(ctx, wanted, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			err = compareWritten(annex, written, sameUID)
		}
		if err != nil {
			return fmt.Errorf("update %s as a dry run: %w", keyOf(annex), err)
		}
	}
	return ProbeCreation(ctx, objects, annex, hostingv1alpha1.MainCopyVersion)
}

// ProbeCreation creates a copy of an object with another name as a dry run, in a version of its group. It returns
// what refuses or changes it. The version may have a subresource for the status, which a creation ignores.
func ProbeCreation(ctx context.Context, objects dynamic.ResourceInterface, object *unstructured.Unstructured, version string) error {
	renamed := object.DeepCopy()
	renamed.SetName("annex-probe-" + string(object.GetUID()))
	if version != hostingv1alpha1.MainCopyVersion {
		delete(renamed.Object, "status")
	}
	wanted := &unstructured.Unstructured{Object: content(renamed, sameUID)}
	wanted.SetGroupVersionKind(object.GroupVersionKind().GroupKind().WithVersion(version))
	created, err := objects.Create(ctx, wanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		err = compareWritten(renamed, created, sameUID)
	}
	if err != nil {
		return fmt.Errorf("create a copy of %s as a dry run: %w", keyOf(object), err)
	}
	return nil
}

// compareWritten returns errChanged with the first field that differs.
func compareWritten(annex, main *unstructured.Unstructured, inMain uidOf) error {
	same, err := sameContent(annex, main, inMain)
	if err == nil && !same {
		err = fmt.Errorf("%w: %s", errChanged, strings.Join(difference(content(annex, inMain), content(main, sameUID)), "."))
	}
	return err
}

// difference returns the path of the first field that differs, in the order of names.
func difference(a, b map[string]any) []string {
	names := sets.KeySet(a).Union(sets.KeySet(b))
	for _, name := range sets.List(names) {
		if same, err := sameJSON(a[name], b[name]); err == nil && same {
			continue
		}
		first, _ := a[name].(map[string]any)
		second, _ := b[name].(map[string]any)
		if first == nil || second == nil {
			return []string{name}
		}
		return append([]string{name}, difference(first, second)...)
	}
	return nil
}
