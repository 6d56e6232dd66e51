// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestShardedReads reads shards of the objects (KEP-5866). The feature gate applies to the whole process.
func TestShardedReads(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	p := startPair(t)
	versions := fill(t, p)
	var all []request
	for _, shard := range []string{
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
		"shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.spec.size, '0x0000000000000000', '0x8000000000000000')",
		"nothing",
	} {
		for _, query := range []string{
			"", "limit=5", "resourceVersion=0", "labelSelector=part%3D1", "fieldSelector=metadata.name%3Dobject-002", "fieldSelector=spec.color%3Dgreen",
			"watch=true&timeoutSeconds=2&resourceVersion=" + versions[0], "watch=true&timeoutSeconds=2&resourceVersion=0",
			"watch=true&timeoutSeconds=2&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		} {
			for _, accept := range []string{
				"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
				"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
			} {
				path := "/apis/" + group + "/v1/widgets?shardSelector=" + url.QueryEscape(shard) + "&" + query
				all = append(all, request{path: path, accept: accept, userAgent: "test"})
			}
		}
	}
	p.compareAll(t, all, 50)
	whole, err := p.annex.read(t.Context(), request{path: "/apis/" + group + "/v1/widgets", accept: "application/json", userAgent: "test"})
	expect.NoError(t, err)
	shard, err := p.annex.read(t.Context(), all[0])
	expect.NoError(t, err)
	if shard.code != http.StatusOK || len(shard.body) >= len(whole.body) {
		t.Errorf("a shard: %d, %d of %d bytes: %.300s", shard.code, len(shard.body), len(whole.body), shard.body)
	}
}
