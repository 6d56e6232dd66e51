// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs types the commands of documentation, word for word and in order, and compares their output.
//
// It uses fenced blocks. Indented blocks are not run.
//
//   - A block of `sh` contains commands that succeed.
//   - A block of `console` contains commands after `$ ` (continued after `> ` or in a
//     here-document) with their output. A command fails if its output has a line that begins with
//     `Error`, `error` or `annex: `, or reports an object as invalid; the others succeed. `…`
//     matches any text, and alone on a line any lines; ages, times and column widths are ignored.
//     Read-only commands (`kubectl get`, `kubectl auth`, `grep` and others) are repeated until
//     the output matches. What follows a question, such as `Continue? [y/N] y`, is typed.
//   - A block of any other language is written to the file that the paragraph above names last,
//     in backquotes. Without a file name it is ignored.
//   - `annex serve` and `make run` run in the background, as in another terminal: the next command is
//     typed when annex is ready. A second `annex serve` stops the first, as Ctrl-C does.
//
// The shell starts in an empty folder that is its home, and /home/me in pages. Port 7443, and every
// other port of 127.0.0.1 above 999, is replaced by a free port.
package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A step is one command or file of a page.
type step struct {
	// Line is its line number on the page.
	Line int
	// File is the file to write Text to, or empty for a command.
	File string
	// Text is the command, or the content of the file.
	Text string
	// Output is the expected output, if Compared.
	Output   string
	Compared bool
}

// serves reports whether the step starts annex successfully.
func (s step) serves() bool { return (s.startsAnnex() || s.runs()) && !s.fails() }

// runs reports whether the step builds annex in a clone, and starts it.
func (s step) runs() bool { return s.Text == "make run" }

func (s step) startsAnnex() bool {
	return s.File == "" && (strings.HasPrefix(s.Text, "annex serve ") || s.Text == "annex serve")
}

var (
	fence    = regexp.MustCompile("^```(\\S*)")
	fileName = regexp.MustCompile("`([\\w./-]+\\.[a-z]+)`")
	hereDoc  = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)
)

// parsePage returns the steps of a page.
func parsePage(page string) ([]step, error) {
	var steps []step
	var block []string
	language, begin, inside := "", 0, false
	var above, last []string // the current and the previous paragraph
	for i, line := range strings.Split(page, "\n") {
		opening := fence.FindStringSubmatch(line)
		switch {
		case inside && line == "```":
			found, err := blockSteps(language, begin+1, block, last)
			if err != nil {
				return nil, err
			}
			steps, inside, block, last = append(steps, found...), false, nil, nil
		case inside:
			block = append(block, line)
		case opening != nil:
			language, begin, inside = opening[1], i+1, true
			if len(above) > 0 {
				last, above = above, nil
			}
		case strings.TrimSpace(line) == "":
			if len(above) > 0 {
				last, above = above, nil
			}
		default:
			above = append(above, line)
		}
	}
	if inside {
		return nil, fmt.Errorf("line %d: the block has no end", begin)
	}
	return steps, nil
}

// blockSteps returns the steps of one block. number is its first line.
func blockSteps(language string, number int, lines, paragraph []string) ([]step, error) {
	switch language {
	case "sh":
		return []step{{Line: number, Text: strings.Join(lines, "\n")}}, nil
	case "console":
		return consoleSteps(number, lines)
	}
	names := fileName.FindAllStringSubmatch(strings.Join(paragraph, " "), -1)
	if len(names) == 0 {
		return nil, nil
	}
	return []step{{Line: number, File: names[len(names)-1][1], Text: strings.Join(lines, "\n") + "\n"}}, nil
}

// consoleSteps separates commands from output.
func consoleSteps(number int, lines []string) ([]step, error) {
	var steps []step
	var output []string
	delimiter := "" // of the here-document that a command is in
	for i, line := range lines {
		command, prompted := strings.CutPrefix(line, "$ ")
		more, continued := strings.CutPrefix(line, "> ")
		switch last := len(steps) - 1; {
		case delimiter != "":
			steps[last].Text += "\n" + line
			if strings.TrimSpace(line) == delimiter {
				delimiter = ""
			}
			continue
		case prompted:
			steps = append(finish(steps, output), step{Line: number + i, Text: command, Compared: true})
			output = nil
		case last < 0:
			return nil, fmt.Errorf("line %d: a block of console begins with `$ `", number+i)
		case continued && len(output) == 0:
			steps[last].Text += "\n" + more
		default:
			output = append(output, line)
			continue
		}
		if found := hereDoc.FindStringSubmatch(line); found != nil {
			delimiter = found[1]
		}
	}
	return finish(steps, output), nil
}

// finish sets the output of the last step.
func finish(steps []step, output []string) []step {
	if len(steps) > 0 {
		steps[len(steps)-1].Output = strings.Join(output, "\n")
	}
	return steps
}

// HasCommands reports whether a page has commands.
func HasCommands(page string) bool {
	steps, err := parsePage(page)
	return err != nil || slices.ContainsFunc(steps, func(s step) bool { return s.File == "" })
}
