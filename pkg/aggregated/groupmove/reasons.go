// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
)

// definition is a short name for signatures.
type definition = apiextensionsv1.CustomResourceDefinition

// fieldManager owns what runs write.
const fieldManager = "annex-migrations"

// Reasons of the condition Complete, besides pkg/controller/migration's.
const (
	reasonNotFound      = "NotFound"
	reasonHosted        = "AlreadyHosted"
	reasonNotHosted     = "NotHosted"
	reasonObstacles     = "CannotBeMoved"
	reasonPlaced        = "AlreadyPlaced"
	reasonStoreNotFound = "StoreNotFound"
	reasonUndone        = "Undone"
	reasonNoCopy        = "NoMainCopy"
)

// Reasons of events.
const (
	eventStarted  = "Started"
	eventSwitched = "Switched"
	eventFailed   = "SwitchFailed"
	eventLate     = "LateWrites"
	eventOwners   = "OwnersNotCorrected"
	// eventAdmission is that the main cluster refuses or changes what a Rollback writes.
	eventAdmission = "AdmissionObstacle"
)

func refuse(reason, format string, arguments ...any) error {
	return migrationstatus.Refuse(reason, format, arguments...)
}

var (
	switchSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "group_switch_duration_seconds",
		Help:           "Time from the change of the main cluster's routes until the other side serves a group.",
		Buckets:        []float64{.1, .25, .5, 1, 2.5, 5, 10, 20},
		StabilityLevel: metrics.ALPHA,
	})

	// RegisterMetrics registers the metrics of this package.
	RegisterMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(switchSeconds) })
)
