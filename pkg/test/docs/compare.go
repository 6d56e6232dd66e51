// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
)

var (
	failure  = regexp.MustCompile(`(?m)^([Ee]rror\b|annex: |The \w+ "[^"]*" is invalid: )`)
	reading  = regexp.MustCompile(`^(kubectl (get|auth|describe|api-resources|explain)|annex version|etcdctl get|grep|cat|tail|head|jq|ls|stat|curl) |--dry-run=server`)
	times    = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b`)
	ages     = regexp.MustCompile(`(^|\s)(\d+(ms|s|m|h|d))+(\s|$)`)
	spaces   = regexp.MustCompile(`[ \t]+`)
	answered = regexp.MustCompile(`(?m)^(.*\[y/N\]|Type the name .*:) (\S+)$\n?`)
	anything = "…"
)

// fails reports whether the page shows a failure of the step.
func (s step) fails() bool { return s.Compared && failure.MatchString(s.Output) }

// reads reports whether the step is read-only, so that it can be repeated.
func (s step) reads() bool { return s.Compared && reading.MatchString(s.Text) }

// answers returns what the page types after the questions of the step, one line each.
func (s step) answers() (typed string) {
	for _, found := range answered.FindAllStringSubmatch(s.Output, -1) {
		typed += found[2] + "\n"
	}
	return typed
}

// printed reports whether the output of a step matches the page.
func (s step) printed(output string) bool {
	if !s.Compared {
		return true
	}
	var pattern strings.Builder
	pattern.WriteString(`(?s)\A`)
	for i, part := range strings.Split(normalize(answered.ReplaceAllString(s.Output, "$1 ")), anything) {
		if i > 0 {
			pattern.WriteString(`.*?`)
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	pattern.WriteString(`\z`)
	return regexp.MustCompile(pattern.String()).MatchString(normalize(output))
}

// normalize removes what differs between runs.
func normalize(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for i, line := range lines {
		line = times.ReplaceAllString(line, "TIME")
		line = ages.ReplaceAllString(line, "${1}AGE$4")
		lines[i] = strings.TrimSpace(spaces.ReplaceAllString(line, " "))
	}
	return strings.Join(lines, "\n")
}
