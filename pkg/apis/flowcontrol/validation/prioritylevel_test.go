// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func priorityLevel() *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(100)), BorrowingLimitPercent: new(int32(0)),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 8, QueueLengthLimit: 50},
				},
			},
		},
	}
}

func TestValidatePriorityLevelConfiguration(t *testing.T) {
	t.Parallel()
	type level = flowcontrolv1.PriorityLevelConfiguration
	limited := func(change func(*flowcontrolv1.LimitedPriorityLevelConfiguration)) func(*level) {
		return func(l *level) { change(l.Spec.Limited) }
	}
	response := func(change func(*flowcontrolv1.LimitResponse)) func(*level) {
		return func(l *level) { change(&l.Spec.Limited.LimitResponse) }
	}
	queuing := func(queues, handSize, length int32) func(*level) {
		return func(l *level) {
			*l.Spec.Limited.LimitResponse.Queuing = flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: handSize, QueueLengthLimit: length}
		}
	}
	const inResponse = "spec.limited.limitResponse"
	tests := map[string]struct {
		change func(*level)
		want   []string
	}{
		"valid": {func(*level) {}, nil},
		"name":  {func(l *level) { l.Name = "A" }, []string{`metadata.name: Invalid value: "A"`}},
		"annotation of an older version": {func(l *level) {
			l.Annotations = map[string]string{"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}
		}, []string{"metadata.annotations: Forbidden: annotation 'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden"}},
		"no type": {func(l *level) { l.Spec.Type = "" }, []string{"spec.type: Required value", "spec.limited: Forbidden"}},
		"unknown type": {func(l *level) { l.Spec.Type = "Free" }, []string{
			`spec.type: Unsupported value: "Free": supported values: "Exempt", "Limited"`, "spec.limited: Forbidden",
		}},
		"another exempt level": {func(l *level) { l.Spec.Type = flowcontrolv1.PriorityLevelEnablementExempt }, []string{
			"spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
			"spec.limited: Forbidden",
		}},
		"unknown type and no response": {func(l *level) {
			l.Spec.Type, l.Spec.Exempt = "Free", &flowcontrolv1.ExemptPriorityLevelConfiguration{LendablePercent: new(int32(-1))}
			l.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{LendablePercent: new(int32(-1))}
		}, []string{"spec.type: Unsupported value", "spec.exempt: Forbidden", "spec.limited: Forbidden", inResponse + ".type: Required value"}},
		"unknown type and response": {func(l *level) {
			l.Spec.Type, l.Spec.Limited.LimitResponse.Type = "Free", "Ignore"
		}, []string{"spec.type: Unsupported value", "spec.limited: Forbidden", inResponse + ".queuing: Forbidden"}},
		"limited and exempt": {func(l *level) { l.Spec.Exempt = &flowcontrolv1.ExemptPriorityLevelConfiguration{} }, []string{"spec.exempt: Forbidden"}},
		"no limits":          {func(l *level) { l.Spec.Limited = nil }, []string{"spec.limited: Required value"}},
		"numbers": {limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.NominalConcurrencyShares, l.LendablePercent, l.BorrowingLimitPercent = new(int32(-1)), new(int32(101)), new(int32(-2))
		}), []string{
			"spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
			"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
			"spec.limited.borrowingLimitPercent: Invalid value: -2: if specified, must be a non-negative integer",
		}},
		"no response": {response(func(r *flowcontrolv1.LimitResponse) { r.Type = "" }), []string{inResponse + ".queuing: Forbidden", inResponse + ".type: Required value"}},
		"unknown response": {response(func(r *flowcontrolv1.LimitResponse) { r.Type = "Ignore" }), []string{
			inResponse + `.type: Unsupported value: "Ignore": supported values: "Queue", "Reject"`, inResponse + ".queuing: Forbidden",
		}},
		"no queues": {response(func(r *flowcontrolv1.LimitResponse) { r.Queuing = nil }), []string{
			inResponse + ".queuing: Required value",
		}},
		"queues of what is refused": {response(func(r *flowcontrolv1.LimitResponse) { r.Type = flowcontrolv1.LimitResponseTypeReject }), []string{
			inResponse + ".queuing: Forbidden",
		}},
		"negative queues": {queuing(-1, -2, -3), []string{
			inResponse + ".queuing.queueLengthLimit: Invalid value: -3: must be positive",
			inResponse + ".queuing.queues: Invalid value: -1: must be positive",
			inResponse + ".queuing.handSize: Invalid value: -2: must be positive",
		}},
		"too many queues":             {queuing(10_000_001, 1, 1), []string{inResponse + ".queuing.queues: Invalid value: 10000001: must not be greater than 10000000"}},
		"a hand larger than the deck": {queuing(4, 5, 1), []string{inResponse + ".queuing.handSize: Invalid value: 5: should not be greater than queues (4)"}},
		"a hand too large to deal": {queuing(512, 8, 1), []string{
			inResponse + ".queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60",
		}},
		"conditions": {func(l *level) {
			l.Status.Conditions = []flowcontrolv1.PriorityLevelConfigurationCondition{{Type: "A"}, {Type: "A"}}
		}, []string{`status.conditions[1].type: Duplicate value: "A"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := priorityLevel()
			test.change(changed)
			expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(changed), test.want...)
		})
	}
}

func TestMandatoryPriorityLevelsAreFixed(t *testing.T) {
	t.Parallel()
	catchAll := bootstrap.MandatoryPriorityLevelConfigurationCatchAll.DeepCopy()
	expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(catchAll))
	catchAll.Spec.Limited.NominalConcurrencyShares = new(int32(6))
	expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(catchAll), "spec: Invalid value: ")

	exempt := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec.Exempt.LendablePercent = new(int32(50))
	expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(exempt))
	exempt.Spec.Exempt.LendablePercent = new(int32(-1))
	expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(exempt), "spec.exempt.lendablePercent: Invalid value: -1")
	exempt.Spec = *priorityLevel().Spec.DeepCopy()
	expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(exempt),
		"spec.type: Invalid value: \"Limited\": must be 'Exempt' if and only if `name` is 'exempt'", "spec: Invalid value: ")

	for _, suggested := range bootstrap.SuggestedPriorityLevelConfigurations {
		expect.FieldErrors(t, validation.ValidatePriorityLevelConfiguration(suggested))
	}
}
