// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
)

// compareWatches compares watches of what was written before.
func compareWatches(t *testing.T, p *pair, versions []string) {
	var watches errgroup.Group
	watches.SetLimit(100)
	v1 := "/apis/" + group + "/v1"
	for _, path := range []string{
		v1 + "/widgets", v1 + "/namespaces/default/widgets", v1 + "/planets", "/apis/" + group + "/v2/widgets", "/apis/" + group + "/v1beta1/widgets",
		v1 + "/namespaces/default/widgets/object-002", v1 + "/planets/object-005",
	} {
		for _, selector := range []string{
			"", "&labelSelector=part%3D1", "&fieldSelector=metadata.name%3Dobject-002", "&fieldSelector=metadata.namespace%3Dother", "&fieldSelector=metadata.name!%3Dobject-002",
			"&fieldSelector=metadata.name%3Dobject-002,spec.color!%3Dx", "&fieldSelector=spec.color%3Dgreen",
		} {
			for _, from := range []string{
				"resourceVersion=" + versions[0], "resourceVersion=" + versions[1], "resourceVersion=0", "", "resourceVersion=x", "resourceVersion=1", "resourceVersion=99999999",
				"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=" + versions[1],
				"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
				"sendInitialEvents=true", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" + versions[1],
			} {
				for _, accept := range []string{
					"application/json", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
					"application/yaml", "application/vnd.kubernetes.protobuf",
				} {
					if (selector != "" || path != v1+"/widgets") && accept != "application/json" {
						continue
					}
					r := request{path: fmt.Sprintf("%s?watch=true&timeoutSeconds=3&%s%s", path, from, selector), accept: accept, userAgent: "test"}
					watches.Go(func() error {
						p.compare(t, r)
						return nil
					})
				}
			}
		}
	}
	_ = watches.Wait()
}
