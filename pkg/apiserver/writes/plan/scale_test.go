// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestScale(t *testing.T) {
	t.Parallel()
	s := newScale(&apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: new(".status.selector"),
	})
	for object, want := range map[string]bool{
		`{}`:                                true,
		`{"spec":{},"status":{}}`:           true,
		`{"spec":{"replicas":0}}`:           true,
		`{"spec":{"replicas":2147483647}}`:  true,
		`{"spec":{"replicas":2147483648}}`:  false,
		`{"spec":{"replicas":-1}}`:          false,
		`{"spec":{"replicas":1.5}}`:         false,
		`{"spec":{"replicas":null}}`:        false,
		`{"spec":[]}`:                       false,
		`{"status":{"replicas":-1}}`:        false,
		`{"status":{"selector":"app=a"}}`:   true,
		`{"status":{"selector":{"app":1}}}`: false,
	} {
		expect.Equal(t, want, s.check([]byte(object)), object)
	}
	expect.Equal(t, true, (*scale)(nil).check([]byte(`{"spec":{"replicas":-1}}`)), "without the subresource")
}
