// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestQuotaInitializer(t *testing.T) {
	t.Parallel()
	plugin, err := resourcequota.NewResourceQuota(nil, 1)
	expect.NoError(t, err)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	plugin.SetDrainedNotification(stop)
	for _, initializer := range Initializers() {
		initializer.Initialize(plugin)
	}
	if err := plugin.ValidateInitialization(); err == nil || strings.Contains(err.Error(), "quotaConfiguration") || strings.Contains(err.Error(), "evaluator") {
		t.Errorf("got %v, want only missing clients", err)
	}
}

// excluding records the excluded resources.
type excluding struct {
	*admission.Handler
	excluded []schema.GroupResource
}

func (e *excluding) ValidateInitialization() error { return nil }

func (e *excluding) SetExcludedAdmissionResources(resources []schema.GroupResource) {
	e.excluded = resources
}

// All reviews must be excluded: kubectl auth whoami and can-i work with any policy.
func TestReviewsAreExcluded(t *testing.T) {
	t.Parallel()
	plugin := &excluding{}
	for _, initializer := range Initializers() {
		initializer.Initialize(plugin)
	}
	want := []schema.GroupResource{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
	expect.Equal(t, want, plugin.excluded, "what policies leave out")
}
