// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const autoUpdate = flowcontrolv1.AutoUpdateAnnotationKey

// ensured returns what Ensure made of the given objects.
func ensured(t *testing.T, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	annexKube := fake.NewClientset(objects...)
	expect.NoError(t, Ensure(t.Context(), annexKube.FlowcontrolV1()))
	return annexKube
}

func schemaOf(t *testing.T, annexKube *fake.Clientset, name string) *flowcontrolv1.FlowSchema {
	t.Helper()
	schema := expect.Get(t, annexKube.FlowcontrolV1().FlowSchemas(), name)
	return schema
}

func levelOf(t *testing.T, annexKube *fake.Clientset, name string) *flowcontrolv1.PriorityLevelConfiguration {
	t.Helper()
	level := expect.Get(t, annexKube.FlowcontrolV1().PriorityLevelConfigurations(), name)
	return level
}

func writes(annexKube *fake.Clientset) (verbs []string) {
	for _, action := range annexKube.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "get" && verb != "watch" {
			verbs = append(verbs, verb+" "+action.GetResource().Resource)
		}
	}
	return verbs
}

func TestEnsureMakesEverythingOnce(t *testing.T) {
	t.Parallel()
	annexKube := ensured(t)
	for _, want := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		expect.Equal(t, want.Spec, schemaOf(t, annexKube, want.Name).Spec, "schema %s", want.Name)
	}
	for _, want := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations) {
		expect.Equal(t, want.Spec, levelOf(t, annexKube, want.Name).Spec, "level %s", want.Name)
	}
	annexKube.ClearActions()
	expect.NoError(t, Ensure(t.Context(), annexKube.FlowcontrolV1()))
	if got := writes(annexKube); len(got) > 0 {
		t.Errorf("writes although all is as it should be: %v", got)
	}
}

func TestEnsureSchemas(t *testing.T) {
	t.Parallel()
	mandatory, suggested := bootstrap.MandatoryFlowSchemaCatchAll, bootstrap.SuggestedFlowSchemaServiceAccounts
	tests := map[string]struct {
		object      *flowcontrolv1.FlowSchema
		annotation  string // none where empty
		generation  int64
		changed     bool   // the spec is not ours
		wantReset   bool   // the spec is ours afterwards
		wantUpdates string // the annotation afterwards
	}{
		"mandatory and changed":                       {mandatory, "true", 2, true, true, "true"},
		"mandatory, updates disabled":                 {mandatory, "false", 2, true, true, "true"},
		"suggested of another version":                {suggested, "true", 3, true, true, "true"},
		"suggested of another version, not annotated": {suggested, "", 1, true, true, "true"},
		"suggested and changed":                       {suggested, "", 2, true, false, "false"},
		"suggested, updates disabled":                 {suggested, "false", 1, true, false, "false"},
		"suggested, changed, updates enabled":         {suggested, "true", 9, true, true, "true"},
		"suggested with an invalid annotation":        {suggested, "maybe", 2, true, false, "false"},
		"suggested and as it should be":               {suggested, "true", 1, false, true, "true"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := test.object.DeepCopy()
			given.Generation = test.generation
			if given.Annotations = nil; test.annotation != "" {
				given.Annotations = map[string]string{autoUpdate: test.annotation, "mine": "yes"}
			}
			if test.changed {
				given.Spec.MatchingPrecedence = 77
			}
			got := schemaOf(t, ensured(t, given), given.Name)
			if reset := got.Spec.MatchingPrecedence == test.object.Spec.MatchingPrecedence; reset != test.wantReset {
				t.Errorf("the spec is annex's: %t, want %t", reset, test.wantReset)
			}
			if got.Annotations[autoUpdate] != test.wantUpdates || (test.annotation != "" && got.Annotations["mine"] != "yes") {
				t.Errorf("annotations %v, want %s=%s and the others kept", got.Annotations, autoUpdate, test.wantUpdates)
			}
		})
	}
}

func TestEnsureLeavesTheShareOfTheExemptLevel(t *testing.T) {
	t.Parallel()
	exempt := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec.Exempt.NominalConcurrencyShares = new(int32(7))
	if got := levelOf(t, ensured(t, exempt), exempt.Name); *got.Spec.Exempt.NominalConcurrencyShares != 7 {
		t.Errorf("shares of the exempt level: %d, want the administrator's 7", *got.Spec.Exempt.NominalConcurrencyShares)
	}
	exempt.Spec.Exempt = nil
	if got := levelOf(t, ensured(t, exempt), exempt.Name); got.Spec.Exempt == nil {
		t.Error("the exempt level has no share at all")
	}
}

func TestEnsureRemovesWhatAnEarlierVersionMade(t *testing.T) {
	t.Parallel()
	schema := func(name string, annotations map[string]string) *flowcontrolv1.FlowSchema {
		return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	annexKube := ensured(t,
		schema("stale", map[string]string{autoUpdate: "true"}),
		schema("adopted", map[string]string{autoUpdate: "false"}),
		schema("own", nil),
		&flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "stale-level", Annotations: map[string]string{autoUpdate: "true"}}},
	)
	schemaOf(t, annexKube, "adopted")
	schemaOf(t, annexKube, "own")
	if _, err := annexKube.FlowcontrolV1().FlowSchemas().Get(t.Context(), "stale", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("read a stale schema: %v, want not found", err)
	}
	if _, err := annexKube.FlowcontrolV1().PriorityLevelConfigurations().Get(t.Context(), "stale-level", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("read a stale level: %v, want not found", err)
	}
}

func TestEnsureFailures(t *testing.T) {
	t.Parallel()
	fail := func(verb, resource string, err error) *fake.Clientset {
		changed := bootstrap.MandatoryFlowSchemaExempt.DeepCopy()
		changed.Annotations = nil
		annexKube := fake.NewClientset(changed,
			&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "stale", Annotations: map[string]string{autoUpdate: "true"}}})
		annexKube.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		return annexKube
	}
	group := flowcontrolv1.Resource("flowschemas")
	tests := map[string]struct {
		annexKube *fake.Clientset
		want      string // no error where empty
	}{
		"list":               {fail("list", "prioritylevelconfigurations", errors.New("away")), "list every PriorityLevelConfiguration: away"},
		"create":             {fail("create", "flowschemas", errors.New("away")), "create FlowSchema catch-all: away"},
		"update":             {fail("update", "flowschemas", errors.New("away")), "update FlowSchema exempt: away"},
		"delete":             {fail("delete", "flowschemas", errors.New("away")), "delete FlowSchema stale, which annex no longer needs: away"},
		"another is faster":  {fail("create", "flowschemas", apierrors.NewAlreadyExists(group, "a")), ""},
		"another changes it": {fail("update", "flowschemas", apierrors.NewConflict(group, "a", nil)), ""},
		"another deletes it": {fail("delete", "flowschemas", apierrors.NewNotFound(group, "a")), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Ensure(t.Context(), test.annexKube.FlowcontrolV1())
			expect.ErrorOrNone(t, err, test.want)
		})
	}
}

func TestControllerRestoresWhatIsDeletedOrChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexKube := fake.NewClientset()
		factory := informers.NewSharedInformerFactory(annexKube, 0)
		controller, err := New(Config{
			AnnexFlowControl: annexKube.FlowcontrolV1(),
			FlowSchemas:      factory.Flowcontrol().V1().FlowSchemas().Informer(),
			PriorityLevels:   factory.Flowcontrol().V1().PriorityLevelConfigurations().Informer(),
		})
		expect.NoError(t, err)
		controllertest.Run(t, controller, 1, factory)
		synctest.Wait()
		expect.Delete(t, annexKube.FlowcontrolV1().FlowSchemas(), "catch-all")
		synctest.Wait()
		schema := schemaOf(t, annexKube, "catch-all")
		schema.Spec.MatchingPrecedence, schema.Generation = 5, 2
		expect.Update(t, annexKube.FlowcontrolV1().FlowSchemas(), schema)
		synctest.Wait()
		if got := schemaOf(t, annexKube, "catch-all").Spec.MatchingPrecedence; got != 10000 {
			t.Errorf("precedence %d, want it restored to 10000", got)
		}
	})
}
