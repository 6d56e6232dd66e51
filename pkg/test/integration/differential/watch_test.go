// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import "strings"

// watches returns the watches that are compared: each selector from few versions, all versions
// without a selector, and all formats for one path. None is from the future: upstream sends nothing then,
// annex an error.
func watches(versions []string) (all []request) {
	v1 := "/apis/" + group + "/v1"
	from := []string{
		"resourceVersion=" + versions[0], "resourceVersion=0",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=" + versions[1],
		"resourceVersion=" + versions[1], "", "resourceVersion=x",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "sendInitialEvents=true",
		"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" + versions[1],
	}
	selectors := []string{
		"labelSelector=part%3D1", "fieldSelector=metadata.name%3Dobject-002", "fieldSelector=metadata.namespace%3Dother", "fieldSelector=metadata.name!%3Dobject-002",
		"fieldSelector=metadata.name%3Dobject-002,spec.color!%3Dx", "fieldSelector=spec.color%3Dgreen",
	}
	add := func(path, accept string, queries ...string) {
		all = append(all, request{path: path + "?watch=true&timeoutSeconds=2&" + strings.Join(queries, "&"), accept: accept, userAgent: "test"})
	}
	for _, path := range []string{
		v1 + "/widgets", v1 + "/namespaces/default/widgets", v1 + "/planets", "/apis/" + group + "/v2/widgets", "/apis/" + group + "/v2/planets", "/apis/" + group + "/v1beta1/widgets",
		v1 + "/namespaces/default/widgets/object-002", v1 + "/planets/object-005",
	} {
		for i, version := range from {
			add(path, "application/json", version)
			for _, selector := range selectors {
				if i < 3 {
					add(path, "application/json", version, selector)
				}
			}
		}
	}
	for _, accept := range []string{
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		"application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml", "application/vnd.kubernetes.protobuf",
	} {
		for _, version := range from {
			add(v1+"/widgets", accept, version)
		}
	}
	return all
}
