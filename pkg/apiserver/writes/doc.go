// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writes serves writes of custom resources from a plan of the JSON that is stored afterwards: creations, and PUT,
// JSON merge patches and apply configurations of whole objects and of their status, in the version that is stored, and
// deletions. It is in front of upstream's handler of custom resources, which decodes, converts, compares and encodes each
// object several times, and passes on every request of which the plan is unsure.
//
// The requests that it serves pass upstream's handlers of each verb, and all admission plugins.
package writes
