// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/admission"
)

// checkPolicies tells which policies an older main cluster lacks: annex then does not apply them.
func checkPolicies(ctx context.Context, e *environment) []finding {
	const fix = "kubectl api-resources --api-group=admissionregistration.k8s.io"
	unserved, err := admission.Unserved(ctx, e.main.Discovery())
	if err != nil {
		return []finding{fail(fix, "%v", err)}
	}
	if len(unserved) > 0 {
		return []finding{warn(fix, "the main cluster does not serve %s in admissionregistration.k8s.io/v1: annex applies no policies of this kind, not those of v1beta1 either", strings.Join(sets.List(unserved), " and "))}
	}
	return []finding{ok("the main cluster serves all kinds of policies that annex applies")}
}
