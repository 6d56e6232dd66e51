// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	policiesPath = "/apis/admissionregistration.k8s.io/v1/"
	matchLevers  = `"resourceRules":[{"operations":["UPDATE"],"apiGroups":["` + group + `"],"apiVersions":["v1"],"resources":["levers"]}]`
)

// TestPlannedAdmission updates objects that policies deny or change, in ways that are planned otherwise.
func TestPlannedAdmission(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.startAnnex(t, "--feature-gates=PlannedWrites=true")
	serveLevers(t, p.annex)
	create(t, p.annex, policiesPath+"validatingadmissionpolicies", json.RawMessage(`{"metadata":{"name":"deny"},"spec":{"matchConstraints":{`+matchLevers+`},
		"validations":[{"expression":"has(object.metadata.resourceVersion) && has(oldObject.metadata.resourceVersion)"},{"expression":"object.spec.size != 13 || oldObject.spec.size == 13","messageExpression":"'not ' + string(object.spec.size) + ' after ' + string(oldObject.spec.size)"}]}}`))
	create(t, p.annex, policiesPath+"validatingadmissionpolicybindings", json.RawMessage(`{"metadata":{"name":"deny"},"spec":{"policyName":"deny","validationActions":["Deny"]}}`))
	create(t, p.annex, policiesPath+"mutatingadmissionpolicies", json.RawMessage(`{"metadata":{"name":"label"},"spec":{"reinvocationPolicy":"Never","failurePolicy":"Ignore",
		"matchConstraints":{`+matchLevers+`,"objectSelector":{"matchLabels":{"change":"me"}}},
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'changed': 'yes'}}}"}}]}}`))
	create(t, p.annex, policiesPath+"mutatingadmissionpolicybindings", json.RawMessage(`{"metadata":{"name":"label"},"spec":{"policyName":"label"}}`))
	for _, name := range []string{"plain", "labelled"} {
		create(t, p.annex, leversPath, lever(name))
	}
	patch := func(name, body string) (string, error) {
		answer, err := send(t.Context(), p.annex.http, http.MethodPatch, p.annex.url+leversPath+"/"+name, string(types.MergePatchType), json.RawMessage(body))
		return string(answer), err
	}
	replace := func(name, from, to string) (string, error) {
		current := p.annex.getLever(t, name)
		answer, err := send(t.Context(), p.annex.http, http.MethodPut, p.annex.url+leversPath+"/"+name, asJSON, json.RawMessage(strings.Replace(current, from, to, 1)))
		return string(answer), err
	}
	untilDenied := func(path, patched, allowed, words string) {
		poll.Until(t, patched+" is denied", func() string {
			_, err := patch(path, patched)
			if err != nil && strings.Contains(err.Error(), words) {
				return ""
			}
			_, _ = patch(path, allowed)
			return fmt.Sprint(err)
		})
	}
	untilDenied("plain", `{"spec":{"size":13}}`, `{"spec":{"size":5}}`, "not 13 after ")
	if _, err := replace("plain", `"size":5`, `"size":13`); err == nil || !strings.Contains(err.Error(), "not 13 after 5") {
		t.Errorf("a PUT that a policy denies: %v", err)
	}
	if _, err := replace("plain", `"size":5`, `"size":6`); err != nil {
		t.Errorf("a PUT that a policy allows: %v", err)
	}
	n := 0
	poll.Until(t, "the mutating policy changes", func() string {
		n++
		answer, err := patch("labelled", fmt.Sprintf(`{"metadata":{"labels":{"change":"me","n":"%d"}}}`, n))
		if err == nil && strings.Contains(answer, `"changed":"yes"`) {
			return ""
		}
		return fmt.Sprint(answer, err)
	})
	if _, err := patch("labelled", `{"metadata":{"labels":{"changed":null,"change":null}}}`); err != nil {
		t.Error(err)
	}
	answer, err := replace("labelled", `"labels":{`, `"labels":{"change":"me",`)
	if err != nil || !strings.Contains(answer, `"changed":"yes"`) {
		t.Errorf("a PUT that a policy changes: %s, %v", answer, err)
	}
	if answer, err := patch("plain", `{"metadata":{"labels":{"other":"label"}}}`); err != nil || strings.Contains(answer, "changed") {
		t.Errorf("a patch that no policy changes: %s, %v", answer, err)
	}
	create(t, p.annex, policiesPath+"validatingadmissionpolicies", json.RawMessage(`{"metadata":{"name":"status"},"spec":{
		"matchConstraints":{`+strings.Replace(matchLevers, `["levers"]`, `["levers/status"]`, 1)+`},"validations":[{"expression":"object.status.count != 13"}]}}`))
	create(t, p.annex, policiesPath+"validatingadmissionpolicybindings", json.RawMessage(`{"metadata":{"name":"status"},"spec":{"policyName":"status","validationActions":["Deny"]}}`))
	untilDenied("plain/status", `{"status":{"count":13}}`, `{"status":{"count":1}}`, "ValidatingAdmissionPolicy 'status'")
	p.testPlannedCreations(t)
	p.testPlannedDeletions(t)
	p.testPlannedLimits(t)
	p.plannedWrites(t)
}

// testPlannedLimits lowers a limit below what is used: objects that are being deleted may grow.
func (p *pair) testPlannedLimits(t *testing.T) {
	t.Helper()
	held := lever("held")
	held["metadata"].(map[string]any)["finalizers"] = []string{"example.com/f"}
	create(t, p.annex, leversPath, held)
	patch := func(path, body string) error {
		_, err := send(t.Context(), p.annex.http, http.MethodPatch, p.annex.url+path, string(types.MergePatchType), json.RawMessage(body))
		return err
	}
	annotate := func(note string) error {
		return patch(leversPath+"/held", fmt.Sprintf(`{"metadata":{"annotations":{"note":%q}}}`, note+strings.Repeat(" and more", 200)))
	}
	poll.UntilNoError(t, "the limit is set", func() error {
		return patch("/apis/hosting.annex.dev/v1alpha1/hostedresources/levers."+group, `{"spec":{"limits":{"storage":"1"}}}`)
	})
	n := 0
	poll.Until(t, "growth is refused", func() string {
		n++
		if err := annotate(strings.Repeat("more", n)); err == nil || !strings.Contains(err.Error(), "exceeded the limits") {
			return fmt.Sprint(err)
		}
		return ""
	})
	_, err := send(t.Context(), p.annex.http, http.MethodDelete, p.annex.url+leversPath+"/held", asJSON, nil)
	expect.NoError(t, err)
	expect.NoError(t, annotate(strings.Repeat("most", n+10)), "an object that is being deleted grows")
}

// testPlannedCreations creates objects that a policy denies or changes.
func (p *pair) testPlannedCreations(t *testing.T) {
	t.Helper()
	match := strings.Replace(matchLevers, "UPDATE", "CREATE", 1)
	create(t, p.annex, policiesPath+"validatingadmissionpolicies", json.RawMessage(`{"metadata":{"name":"creations"},"spec":{"matchConstraints":{`+match+`},
		"validations":[{"expression":"object.spec.size != 13 && oldObject == null && object.metadata.uid != '' && object.metadata.generation == 1 && object.metadata.name == request.name"}]}}`))
	create(t, p.annex, policiesPath+"validatingadmissionpolicybindings", json.RawMessage(`{"metadata":{"name":"creations"},"spec":{"policyName":"creations","validationActions":["Deny"]}}`))
	create(t, p.annex, policiesPath+"mutatingadmissionpolicies", json.RawMessage(`{"metadata":{"name":"creations"},"spec":{"reinvocationPolicy":"Never","failurePolicy":"Ignore",
		"matchConstraints":{`+match+`,"objectSelector":{"matchLabels":{"create":"me"}}},
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'changed': 'yes'}}}"}}]}}`))
	create(t, p.annex, policiesPath+"mutatingadmissionpolicybindings", json.RawMessage(`{"metadata":{"name":"creations"},"spec":{"policyName":"creations"}}`))
	post := func(name, label string, size int) (string, error) {
		object := lever(name)
		object["metadata"].(map[string]any)["labels"] = map[string]any{"create": label}
		object["spec"].(map[string]any)["size"] = size
		answer, err := send(t.Context(), p.annex.http, http.MethodPost, p.annex.url+leversPath, asJSON, object)
		return string(answer), err
	}
	n := 0
	poll.Until(t, "a creation is denied", func() string {
		n++
		answer, err := post(fmt.Sprintf("denied-%d", n), "it", 13)
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'creations'") {
			return ""
		}
		return fmt.Sprint(answer, err)
	})
	poll.Until(t, "a creation is changed", func() string {
		n++
		answer, err := post(fmt.Sprintf("changed-%d", n), "me", 5)
		if err == nil && strings.Contains(answer, `"changed":"yes"`) {
			return ""
		}
		return fmt.Sprint(answer, err)
	})
	if answer, err := post("created", "it", 5); err != nil || strings.Contains(answer, "changed") {
		t.Errorf("a creation that no policy changes: %s, %v", answer, err)
	}
	generated := lever("")
	generated["metadata"] = map[string]any{"generateName": "made-"}
	create(t, p.annex, leversPath, generated)
}

// testPlannedDeletions deletes objects, which a policy denies for some.
func (p *pair) testPlannedDeletions(t *testing.T) {
	t.Helper()
	create(t, p.annex, policiesPath+"validatingadmissionpolicies", json.RawMessage(`{"metadata":{"name":"deletions"},"spec":{"matchConstraints":{`+strings.Replace(matchLevers, "UPDATE", "DELETE", 1)+`},
		"validations":[{"expression":"object == null && has(oldObject.metadata.resourceVersion) && request.name == oldObject.metadata.name && oldObject.spec.class != 'kept'"}]}}`))
	create(t, p.annex, policiesPath+"validatingadmissionpolicybindings", json.RawMessage(`{"metadata":{"name":"deletions"},"spec":{"policyName":"deletions","validationActions":["Deny"]}}`))
	createAndDelete := func(class string) error {
		object := lever("deleted-" + class)
		object["spec"].(map[string]any)["class"] = class
		create(t, p.annex, leversPath, object)
		_, err := send(t.Context(), p.annex.http, http.MethodDelete, p.annex.url+leversPath+"/deleted-"+class, asJSON, nil)
		return err
	}
	poll.Until(t, "a deletion is denied", func() string {
		if err := createAndDelete("kept"); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'deletions'") {
			return fmt.Sprint(err)
		}
		return ""
	})
	expect.NoError(t, createAndDelete("gone"), "a deletion that the policy allows")
	expect.Equal(t, "", p.annex.getLever(t, "deleted-gone"))
	if p.annex.getLever(t, "deleted-kept") == "" {
		t.Error("the object that a policy keeps is gone")
	}
}
