// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

func TestKubernetesFrom(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		deps []*debug.Module
		want string
	}{
		"release":          {[]*debug.Module{{Path: "k8s.io/api", Version: "v0.9.9"}, {Path: kubernetesModule, Version: "v0.37.2"}}, "1.37.2"},
		"not a dependency": {[]*debug.Module{{Path: "k8s.io/api", Version: "v0.37.2"}}, ""},
		"no version":       {[]*debug.Module{{Path: kubernetesModule, Version: "(devel)"}}, ""},
		"renumbered":       {[]*debug.Module{{Path: kubernetesModule, Version: "v1.2.3"}}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := kubernetesFrom(tc.deps)
			if (got == nil) != (tc.want == "") || got != nil && got.String() != tc.want {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}

func TestKubernetesMatchesUpstreamConstant(t *testing.T) {
	t.Parallel()
	want := utilversion.MustParse(baseversion.DefaultKubeBinaryVersion)
	if got := Kubernetes(); got.Major() != want.Major() || got.Minor() != want.Minor() {
		t.Errorf("compiled-in Kubernetes is %s, component-base has %s", got, want)
	}
}

func TestNewEffectiveVersion(t *testing.T) {
	t.Parallel()
	effective := NewEffectiveVersion()
	if err := AssertEmulated(effective); err != nil {
		t.Errorf("fresh effective version: %v", err)
	}
	if errs := effective.Validate(); len(errs) > 0 {
		t.Errorf("fresh effective version does not validate: %v", errs)
	}
	info := effective.Info()
	if _, err := utilversion.ParseSemantic(info.GitVersion); err != nil {
		t.Errorf("gitVersion %q is what kubectl parses: %v", info.GitVersion, err)
	}
}

func TestAssertEmulated(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		effective compatibility.EffectiveVersion
		wantErr   bool
	}{
		"annex's own version taken for Kubernetes'": {compatibility.NewEffectiveVersionFromString("0.1.0", "", ""), true},
		"another Kubernetes":                        {compatibility.NewEffectiveVersionFromString("1.30.0", "", ""), true},
		"none":                                      {nil, true},
		"the compiled-in one":                       {NewEffectiveVersion(), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := AssertEmulated(tc.effective); (err != nil) != tc.wantErr {
				t.Errorf("AssertEmulated() = %v, want error: %v", err, tc.wantErr)
			}
		})
	}
}
