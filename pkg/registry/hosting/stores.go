// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var stores = typed.Resource{
	Kind:       v1alpha1.SchemeGroupVersion.WithKind("Store"),
	ShortNames: []string{"sto"},
	Categories: []string{"annex"},
	Strategy:   mainStoreStrategy,
	Table:      storeTable,
}

// storeStrategy is the strategy of the main endpoint.
type storeStrategy struct {
	typed.SpecStatusStrategy[*v1alpha1.Store]
}

var mainStoreStrategy = storeStrategy{typed.SpecStatusStrategy[*v1alpha1.Store]{
	ValidatedStrategy:        typed.Validated(typed.ClusterScoped, validation.ValidateStore, validation.ValidateStoreUpdate),
	ValidateStatusUpdateFunc: validation.ValidateStoreStatusUpdate,
}}

// PrepareForCreate adds the finalizer, except to the Store "default", which cannot be
// deleted.
func (s storeStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	store := obj.(*v1alpha1.Store)
	if store.Name != v1alpha1.DefaultStoreName && !slices.Contains(store.Finalizers, v1alpha1.StoreFinalizer) {
		store.Finalizers = append(store.Finalizers, v1alpha1.StoreFinalizer)
	}
}

// ValidateUpdate lets annex itself change the etcd of the Store "default", which its flags name.
func (s storeStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	after, before := obj.(*v1alpha1.Store), old.(*v1alpha1.Store)
	if caller, ok := request.UserFrom(ctx); ok && caller.GetName() == user.APIServerUser && before.Name == v1alpha1.DefaultStoreName {
		before = before.DeepCopy()
		before.Spec.Embedded, before.Spec.Etcd = after.Spec.Embedded, after.Spec.Etcd
	}
	return s.SpecStatusStrategy.ValidateUpdate(ctx, after, before)
}

// storeUse refuses the deletion of Stores that are in use.
type storeUse struct {
	hostedResources, migrations rest.Lister
}

// mayDelete refuses to delete the Store "default", Stores with HostedResources, and Stores that
// Migrations use, unless their etcd is lost.
func (u storeUse) mayDelete(ctx context.Context, obj runtime.Object) error {
	store, ok := obj.(*v1alpha1.Store)
	if !ok {
		return fmt.Errorf("delete a Store: unexpected type %T", obj)
	}
	if store.Name == v1alpha1.DefaultStoreName {
		return apierrors.NewForbidden(v1alpha1.Resource("stores"), store.Name, errors.New("this Store always exists"))
	}
	held, err := u.held(ctx, store.Name)
	if err != nil {
		return fmt.Errorf("list the HostedResources on Store %s: %w", store.Name, err)
	}
	if len(held) > 0 {
		return apierrors.NewConflict(v1alpha1.Resource("stores"), store.Name, fmt.Errorf(
			"it holds %s: a Store can be deleted once nothing is placed on it. Move them to other Stores with `kubectl annex drain %s`", some(held), store.Name))
	}
	moving, err := u.moving(ctx, store.Name)
	if err != nil {
		return fmt.Errorf("list the Migrations from and to Store %s: %w", store.Name, err)
	}
	if len(moving) > 0 && !meta.IsStatusConditionFalse(store.Status.Conditions, v1alpha1.StoreReady) {
		return apierrors.NewConflict(v1alpha1.Resource("stores"), store.Name, fmt.Errorf(
			"it is used by the Migrations %s: wait until they are finished, or delete them. Once its etcd is lost, the Store can be deleted", some(moving)))
	}
	return nil
}

// held returns the names of the HostedResources on a Store.
func (u storeUse) held(ctx context.Context, store string) ([]string, error) {
	placed := fields.OneTermEqualSelector(v1alpha1.HostedResourceStoreNameField, store)
	list, err := u.hostedResources.List(ctx, &internalversion.ListOptions{FieldSelector: placed})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, resource := range list.(*v1alpha1.HostedResourceList).Items {
		names = append(names, resource.Name)
	}
	return names, nil
}

// moving returns the names of the unfinished Migrations from or to a Store.
func (u storeUse) moving(ctx context.Context, store string) ([]string, error) {
	list, err := u.migrations.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, migration := range list.(*v1alpha1.MigrationList).Items {
		if migration.Uses(store) {
			names = append(names, migration.Name)
		}
	}
	return names, nil
}

// some joins the first names.
func some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

type storeColumn = table.Column[*v1alpha1.Store]

var storeTable = table.New(v1alpha1.Resource("stores"),
	table.Name[*v1alpha1.Store](),
	storeColumn{
		Name:        "Ready",
		Description: "Whether the store serves reads and writes.",
		Value:       func(store *v1alpha1.Store) any { return conditionStatus(store.Status.Conditions, v1alpha1.StoreReady) },
	},
	storeColumn{
		Name:        "Resources",
		Type:        "integer",
		Description: "The number of resources on the store.",
		Value:       func(store *v1alpha1.Store) any { return int64(store.Status.Resources) },
	},
	storeColumn{
		Name:        "Objects",
		Type:        "integer",
		Description: "The number of objects of annex in the store.",
		Value:       func(store *v1alpha1.Store) any { return store.Status.Objects },
	},
	storeColumn{
		Name:        "Size",
		Description: "The size of the database on disk.",
		Priority:    table.Wide,
		Value:       func(store *v1alpha1.Store) any { return table.Quantity(store.Status.DatabaseSize) },
	},
	storeColumn{
		Name:        "In Use",
		Description: "The part of the size that holds data.",
		Value:       func(store *v1alpha1.Store) any { return table.Quantity(store.Status.SizeInUse) },
	},
	storeColumn{
		Name:        "Quota",
		Description: "The size at which the store refuses writes.",
		Value:       func(store *v1alpha1.Store) any { return table.Quantity(store.Status.Quota) },
	},
	storeColumn{
		Name:        "Version",
		Description: "The lowest etcd version of the members.",
		Priority:    table.Wide,
		Value:       func(store *v1alpha1.Store) any { return store.Status.Version },
	},
	table.Age[*v1alpha1.Store](),
	storeColumn{
		Name:        "Reason",
		Description: "The reasons of the conditions Ready and UnderPressure.",
		Priority:    table.Wide,
		Value:       storeReason,
	},
	storeColumn{
		Name:        "Last Backup",
		Description: "The time since a client last read a complete backup.",
		Priority:    table.Wide,
		Value: func(store *v1alpha1.Store) any {
			if store.Status.LastBackupTime == nil {
				return table.None
			}
			return table.Since(store.Status.LastBackupTime.Time)
		},
	},
	storeColumn{
		Name:        "Members",
		Type:        "integer",
		Description: "The number of members of the etcd cluster.",
		Priority:    table.Wide,
		Value:       func(store *v1alpha1.Store) any { return int64(len(store.Status.Members)) },
	},
	storeColumn{
		Name:        "Endpoints",
		Description: "The endpoints of the etcd cluster, or \"embedded\".",
		Priority:    table.Wide,
		Value:       storeEndpoints,
	},
	storeColumn{
		Name:        "Taints",
		Description: "The taints, and whether the store is unschedulable.",
		Priority:    table.Wide,
		Value:       storeTaints,
	},
)

// storeReason returns the reason of Ready, and of UnderPressure while it is true.
func storeReason(store *v1alpha1.Store) any {
	var cells []string
	if condition := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.StoreReady); condition != nil {
		cells = append(cells, condition.Reason)
	}
	if condition := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.StoreUnderPressure); condition != nil && condition.Status == metav1.ConditionTrue {
		cells = append(cells, condition.Reason)
	}
	return table.OrNone(strings.Join(slices.Compact(cells), ","))
}

func storeEndpoints(store *v1alpha1.Store) any {
	if store.Spec.Etcd == nil {
		return "embedded"
	}
	return strings.Join(store.Spec.Etcd.Endpoints, ",")
}

func storeTaints(store *v1alpha1.Store) any {
	var cells []string
	if store.Spec.Unschedulable {
		cells = append(cells, "unschedulable")
	}
	for _, taint := range store.Spec.Taints {
		cell := taint.Key
		if taint.Value != "" {
			cell += "=" + taint.Value
		}
		cells = append(cells, cell+":"+string(taint.Effect))
	}
	return table.OrNone(strings.Join(cells, ","))
}
