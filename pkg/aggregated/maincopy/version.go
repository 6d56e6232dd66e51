// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Open makes the main cluster's copy of a group reachable, and returns when the main cluster
// serves every resource of it in MainCopyVersion. Conversion of versions is off until Close:
// objects are stored as they are written. Only annex may write them. Open deletes those in namespaces
// that do not exist.
func (c *Copy) Open(ctx context.Context, group string) ([]Resource, error) {
	if err := c.enforce(ctx, group, copyPolicy); err != nil {
		return nil, err
	}
	resources, err := c.openVersion(ctx, group)
	if err != nil {
		return nil, err
	}
	return resources, c.removeStale(ctx, group, resources)
}

// openVersion is called again whenever a request for the copy is answered with 404, because another client
// may have applied the definition without the version.
func (c *Copy) openVersion(ctx context.Context, group string) ([]Resource, error) {
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return nil, err
	}
	resources := make([]Resource, 0, len(definitions))
	for _, definition := range definitions {
		opened, err := c.change(ctx, definition.Name, openDefinition)
		if err != nil {
			return nil, fmt.Errorf("add the version for the copy to definition %s: %w", definition.Name, err)
		}
		resources = append(resources, ResourceOf(opened))
	}
	return resources, c.waitServed(ctx, resources, true)
}

// IsOpen reports whether all definitions of a group are as Open leaves them.
func (c *Copy) IsOpen(ctx context.Context, group string) (bool, error) {
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return false, err
	}
	for _, definition := range definitions {
		if changed, err := openDefinition(definition); changed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Close undoes Open, and returns when the main cluster no longer serves the version. Every
// kube-apiserver then creates the storage of the resources anew: it ends all watches that were
// opened before, and answers those that continue from an earlier resource version with 410.
func (c *Copy) Close(ctx context.Context, group string) error {
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return err
	}
	var open []Resource
	for _, definition := range definitions {
		if version := versionOf(definition); version != nil && version.Served {
			open = append(open, ResourceOf(definition))
		}
		_, err := c.change(ctx, definition.Name, func(current *apiextensionsv1.CustomResourceDefinition) (bool, error) {
			_, annotated := current.Annotations[conversionAnnotation]
			return annotated || versionOf(current) != nil, closeDefinition(current)
		})
		if err != nil {
			return fmt.Errorf("remove the version for the copy from definition %s: %w", definition.Name, err)
		}
	}
	if err := c.waitServed(ctx, open, false); err != nil {
		return err
	}
	return c.remove(ctx, hostingv1alpha1.CopyPolicyName(group))
}

// EndWatches makes the main cluster end the watches of a group's resources that were opened
// before their requests went to annex. It changes the specs of the definitions, and changes
// them back at once.
func (c *Copy) EndWatches(ctx context.Context, group string) error {
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return err
	}
	var errs []error
	for _, definition := range definitions {
		if _, err := c.change(ctx, definition.Name, disturb); err != nil {
			errs = append(errs, fmt.Errorf("change definition %s to end watches: %w", definition.Name, err))
			continue
		}
		if _, err := c.change(ctx, definition.Name, settle); err != nil {
			errs = append(errs, fmt.Errorf("change definition %s back after watches were ended: %w", definition.Name, err))
		}
	}
	return errors.Join(errs...)
}

// disturb changes only the version that Open adds. As long as it is there, annex's definition does not follow the main
// cluster's.
func disturb(definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	if version := versionOf(definition); version != nil {
		version.Schema.OpenAPIV3Schema.Description = openDescription + " Watches end now."
		return true, nil
	}
	definition.Spec.Versions = append(definition.Spec.Versions, newVersion(false))
	return true, nil
}

func settle(definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	version := versionOf(definition)
	if version != nil && version.Served {
		version.Schema.OpenAPIV3Schema.Description = openDescription
		return true, nil
	}
	removeVersion(definition)
	return version != nil, nil
}

// change updates a definition, again after a conflict. It returns what the main cluster has.
func (c *Copy) change(ctx context.Context, name string, edit func(*apiextensionsv1.CustomResourceDefinition) (bool, error)) (*apiextensionsv1.CustomResourceDefinition, error) {
	var result *apiextensionsv1.CustomResourceDefinition
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := c.definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edited := current.DeepCopy()
		changed, err := edit(edited)
		if err != nil || !changed {
			result = current
			return err
		}
		if err := c.check(ctx); err != nil {
			return err
		}
		result, err = c.definitions.Update(ctx, edited, metav1.UpdateOptions{})
		return err
	})
	return result, err
}
