// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// exception is a reason why tests cannot pass.
type exception struct {
	// needs names a requirement of the tests that annex does not fulfil.
	needs string
	// message is part of the failure of each test.
	message string
	// skipReason is the reason why the tests are not run. Then message is not used.
	skipReason string
	// tests are regular expressions of the beginnings of names. Each matches a test.
	tests []string
}

// notServed is the error of clients for a resource that is not served.
const notServed = "could not find the requested resource"

// attempt is the result of a test in its suite.
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
		result.state, result.reason = failed, "it was not run, and is not among the exceptions"
	case e == nil:
	case a.state == passed:
		result.state, result.reason = failed, "it passes: remove it from the exceptions"
	case a.state == failed && e.skipReason == "" && strings.Contains(a.message, e.message):
		result.state, result.reason = skipped, e.needs
	case a.state == failed:
		result.reason = fmt.Sprintf("want a failure with %q\n%s", e.message, a.message)
	case e.skipReason == "" && a.message == "":
		result.state, result.reason = failed, "it was not run"
	case e.skipReason != "":
		result.reason = fmt.Sprintf("%s (not run: %s)", e.needs, e.skipReason)
	}
	return result
}
