// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var migrations = typed.Resource{
	Kind:       v1alpha1.SchemeGroupVersion.WithKind("Migration"),
	ShortNames: []string{"mig"},
	Categories: []string{"annex"},
	Strategy:   migrationUpdates,
	Table:      migrationTable,
}

// migrationStrategy is the strategy of Migrations, without their subresource status.
type migrationStrategy struct {
	typed.SpecStatusStrategy[*v1alpha1.Migration]
}

var migrationUpdates = migrationStrategy{typed.SpecStatusStrategy[*v1alpha1.Migration]{
	ValidatedStrategy:        typed.Validated(typed.ClusterScoped, validation.ValidateMigration, validation.ValidateMigrationUpdate),
	ValidateStatusUpdateFunc: validation.ValidateMigrationStatusUpdate,
}}

// PrepareForCreate sets the phase Pending, and the finalizer that makes deletion wait for the
// controller.
func (s migrationStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	migration := obj.(*v1alpha1.Migration)
	migration.Status.Phase = v1alpha1.MigrationPending
	if !slices.Contains(migration.Finalizers, v1alpha1.MigrationFinalizer) {
		migration.Finalizers = append(migration.Finalizers, v1alpha1.MigrationFinalizer)
	}
}

type migrationColumn = table.Column[*v1alpha1.Migration]

var migrationTable = table.New(v1alpha1.Resource("migrations"),
	table.Name[*v1alpha1.Migration](),
	migrationColumn{
		Name:        "Resource",
		Description: "The resource or group that is moved.",
		Priority:    table.Wide,
		Value:       func(migration *v1alpha1.Migration) any { return migration.Moved() },
	},
	migrationColumn{
		Name:        "From",
		Description: "The Store that the resource is moved from, or the main cluster.",
		Priority:    table.Wide,
		Value:       func(migration *v1alpha1.Migration) any { return migration.From() },
	},
	migrationColumn{
		Name:        "To",
		Description: "The Store that the resource is moved to, or the main cluster.",
		Value:       func(migration *v1alpha1.Migration) any { return migration.To() },
	},
	migrationColumn{
		Name:        "Phase",
		Description: "The step: Pending, Copying, Following, Verifying, Switching, Observing, Cleaning; or the result: Completed, Failed, Canceled.",
		Value:       func(migration *v1alpha1.Migration) any { return string(migration.Status.Phase) },
	},
	migrationColumn{
		Name:        "Copied",
		Description: "How many of the objects are copied, in percent.",
		Value:       func(migration *v1alpha1.Migration) any { return migration.Copied() },
	},
	table.Age[*v1alpha1.Migration](),
	migrationColumn{
		Name:        "Objects",
		Type:        "integer",
		Description: "The number of objects when the copy began.",
		Priority:    table.Wide,
		Value:       func(migration *v1alpha1.Migration) any { return migration.Status.Objects },
	},
	migrationColumn{
		Name:        "Lag",
		Description: "The number of revisions of the previous Store that are not copied yet.",
		Priority:    table.Wide,
		Value:       migrationLag,
	},
	migrationColumn{
		Name:        "Message",
		Description: "What the Migration does, what it waits for, or why it failed.",
		Priority:    table.Wide,
		Value: func(migration *v1alpha1.Migration) any {
			return conditionMessage(migration.Status.Conditions, v1alpha1.MigrationComplete)
		},
	},
)

func migrationLag(migration *v1alpha1.Migration) any {
	if migration.Status.Lag == nil {
		return table.None
	}
	return fmt.Sprint(*migration.Status.Lag)
}
