// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

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
