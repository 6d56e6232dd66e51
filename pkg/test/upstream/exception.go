// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// exception is why tests cannot pass.
type exception struct {
	// needs is what the tests need and do not have.
	needs string
	// says is part of how each of the tests fails.
	says string
	// untried is why the tests are not run at all. Then says is not used.
	untried string
	// tests are regular expressions that names begin with. Each matches at least one test.
	tests []string
}

// notServed is how clients report a resource that a server does not have.
const notServed = "could not find the requested resource"

// attempt is a test as its suite saw it.
type attempt struct {
	test string
	// state is skipped if the test was not run, or skipped itself: then it has a message.
	state   state
	message string
}

// judge compares the attempts of a suite with its exceptions.
func judge(attempts []attempt, exceptions []exception) []outcome {
	matched := map[string]bool{}
	var outcomes []outcome
	for _, attempt := range attempts {
		var found *exception
		for i := range exceptions {
			for _, pattern := range exceptions[i].tests {
				if regexp.MustCompile("^" + pattern).MatchString(attempt.test) {
					found, matched[pattern] = &exceptions[i], true
				}
			}
		}
		outcomes = append(outcomes, attempt.against(found))
	}
	for _, exception := range exceptions {
		for _, pattern := range exception.tests {
			if !matched[pattern] {
				outcomes = append(outcomes, outcome{test: pattern, state: failed, reason: "upstream has no such test: remove it from the exceptions"})
			}
		}
	}
	return outcomes
}

func (a attempt) against(e *exception) outcome {
	result := outcome{test: a.test, state: a.state, reason: a.message}
	switch {
	case e == nil && a.state == skipped && a.message == "":
		result.state, result.reason = failed, "it was not tried, and is not among the exceptions"
	case e == nil:
	case a.state == passed:
		result.state, result.reason = failed, "it passes: remove it from the exceptions"
	case a.state == failed && e.untried == "" && strings.Contains(a.message, e.says):
		result.state, result.reason = skipped, e.needs
	case a.state == failed:
		result.reason = fmt.Sprintf("it was expected to say %q\n%s", e.says, a.message)
	case e.untried == "" && a.message == "":
		result.state, result.reason = failed, "it was not tried"
	case e.untried != "":
		result.reason = fmt.Sprintf("%s (not tried: %s)", e.needs, e.untried)
	}
	return result
}
