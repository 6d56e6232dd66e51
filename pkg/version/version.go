// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version has annex's own version and the Kubernetes version whose API machinery
// is compiled in.
//
// Upstream derives the emulated Kubernetes version from the binary's version: with annex's
// version 0.1.0 it would emulate Kubernetes 0.1 and disable every newer feature.
package version

import (
	"fmt"
	"runtime/debug"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// gitVersion and gitCommit are set by the Makefile through -ldflags.
var (
	gitVersion = "v0.0.0-dev"
	gitCommit  = ""
)

// kubernetesModule has the version of the Kubernetes release that annex is built from: staging
// module v0.X.Y belongs to Kubernetes v1.X.Y.
const kubernetesModule = "k8s.io/apiserver"

// oldestSupportedSkew limits how many minor versions the emulated version may be
// behind the binary, as for kube-apiserver (KEP-4330).
const oldestSupportedSkew = 3

// Annex returns annex's own version, for example v0.1.0.
func Annex() string { return gitVersion }

// Commit returns the commit annex was built from, or "" when it is not known.
func Commit() string { return gitCommit }

// Kubernetes returns the Kubernetes version whose API machinery is compiled in.
func Kubernetes() *utilversion.Version {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := kubernetesFrom(info.Deps); v != nil {
			return v
		}
	}
	// Test binaries may carry no module list; upstream's constant has no patch.
	return utilversion.MustParse(baseversion.DefaultKubeBinaryVersion + ".0")
}

func kubernetesFrom(deps []*debug.Module) *utilversion.Version {
	for _, dep := range deps {
		if dep.Path != kubernetesModule {
			continue
		}
		staging, err := utilversion.ParseSemantic(dep.Version)
		if err != nil || staging.Major() != 0 {
			return nil
		}
		return utilversion.MustParseSemantic(fmt.Sprintf("1.%d.%d", staging.Minor(), staging.Patch()))
	}
	return nil
}

// Full returns what /version reports as gitVersion: the Kubernetes version,
// which clients parse and compare, with annex's own as build metadata.
func Full() string {
	return fmt.Sprintf("v%s%s%s", Kubernetes(), metadata, strings.TrimPrefix(gitVersion, "v"))
}

// metadata begins the build metadata in the version of a server that is annex.
const metadata = "+annex."

// IsAnnex reports whether a server with this gitVersion is annex.
func IsAnnex(gitVersion string) bool { return AnnexOf(gitVersion) != "" }

// AnnexOf returns annex's own version from the gitVersion of a server, or an empty string if it is another server.
func AnnexOf(gitVersion string) string {
	_, own, is := strings.Cut(gitVersion, metadata)
	if !is {
		return ""
	}
	return "v" + own
}

// Label is the label that the Lease of the leader has, with the leader's Annex as its value.
const Label = "app.kubernetes.io/version"

// NewEffectiveVersion returns the version of the chain's servers: the compiled-in Kubernetes
// version, which --emulated-version can lower.
func NewEffectiveVersion() compatibility.MutableEffectiveVersion {
	binary := Kubernetes()
	floor := utilversion.MajorMinor(binary.Major(), binary.Minor()).SubtractMinor(oldestSupportedSkew)
	return effectiveVersion{compatibility.NewEffectiveVersion(binary, false, floor, floor)}
}

// effectiveVersion reports annex's build beside the Kubernetes version; only
// Info differs from upstream's.
type effectiveVersion struct {
	compatibility.MutableEffectiveVersion
}

func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := v.MutableEffectiveVersion.Info()
	info.GitVersion = Full()
	info.GitCommit = Commit()
	info.GitTreeState = ""
	info.BuildDate = ""
	return info
}

// AssertEmulated returns an error unless effective emulates the compiled-in Kubernetes
// release, or one that --emulated-version may select.
func AssertEmulated(effective compatibility.EffectiveVersion) error {
	if effective == nil {
		return fmt.Errorf("no Kubernetes version is registered for this server")
	}
	compiled, emulated := Kubernetes(), effective.EmulationVersion()
	if binary := effective.BinaryVersion(); binary.Major() != compiled.Major() || binary.Minor() != compiled.Minor() {
		return fmt.Errorf("this binary is built from Kubernetes %d.%d but its version is %s", compiled.Major(), compiled.Minor(), binary)
	}
	oldest := utilversion.MajorMinor(compiled.Major(), compiled.Minor()).SubtractMinor(oldestSupportedSkew)
	if emulated.LessThan(oldest) || emulated.GreaterThan(utilversion.MajorMinor(compiled.Major(), compiled.Minor())) {
		return fmt.Errorf("--emulated-version: Kubernetes %s cannot be emulated, allowed is %s to %d.%d", emulated, oldest, compiled.Major(), compiled.Minor())
	}
	return nil
}
