// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MarkDeleted returns the JSON that would be stored for a deletion of an object that has finalizers, of which current is the
// JSON as for Plan.
func (s *Schema) MarkDeleted(current []byte, now time.Time) ([]byte, error) {
	object := storedObject(current)
	metadata, err := s.metadataOf(object)
	if err != nil {
		return nil, err
	}
	for _, finalizer := range itemsOf(metadata.get("finalizers")) {
		if name := unquoted(finalizer); name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents {
			return nil, errDeleting // the options may remove it
		}
	}
	changes := map[string]string{"deletionGracePeriodSeconds": "0"}
	if marked := metadata.get("deletionTimestamp"); marked != "" {
		if since, err := time.Parse(time.RFC3339, unquoted(marked)); err != nil || since.After(now) {
			return nil, errDeleting
		}
	} else {
		generation, err := generationOf(metadata)
		if err != nil {
			return nil, err
		}
		if generation > 0 {
			changes["generation"] = strconv.FormatInt(generation+1, 10)
		}
		changes["deletionTimestamp"] = `"` + now.UTC().Format(time.RFC3339) + `"`
	}
	return append(s.encodeObject(object.only(member.isContent), newMetadata(metadata, changes)), '\n'), nil
}
