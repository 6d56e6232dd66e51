// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// phrase is a wording that is hard to understand, and what to write instead.
type phrase struct {
	pattern *regexp.Regexp
	instead string
	// word is part of every match, in lower case. Searching for it first makes the check fast.
	word []string
}

const (
	subject = `(?:it|them|him|others|everything|etcd|annex|clients?|requests?|kube-apiserver|upstream|(?:the|a|all|every|its)\s[a-z]+)`
	verb    = `(?:do|say|take|come|leave|make|pass|see|wake|ask|know|forget|keep|serve|tell|reload|decide|fail|refuse|put|give|begin|think|create|delete|get|become|be|follow|notice|retry)`
)

// phrases match text of which any white space, line ends included, is one space.
var phrases = []phrase{
	newPhrase(`(?:^|[.:;,(] |\b(?:of|to|for|by|from|with|and|or|but|than|that|as|tells?|asks?|what|if|because|where|when|is) )who\b`, "a noun: clients that, the user that", "who"),
	newPhrase(`\bbut for\b`, "except, except for", "but"),
	newPhrase(`\bat the (?:most|least)\b`, "at most, at least", "least", "most"),
	newPhrase(`\bother than that\b|\banother than\b`, "different from", "other"),
	newPhrase(`\bof (?:before|after)\b`, "previous, earlier, later", "before", "after"),
	newPhrase(`\b(?:has|have|had|having) `+subject+` `+verb+`\b`, "makes, lets, causes", "has", "have", "had", "having"),
	newPhrase(`\b(?:is|are|be|was|were|been|being|stays?|while|goes|go) away\b`, "unavailable, down, disconnected, disappears", "away"),
	newPhrase(`\byou(?:ng|th)\b`, "new, recent", "you"),
	newPhrase(`\b(?:he|his|him|himself|she|her)\b`, "they, or a noun", "he", "hi"),
	newPhrase(`\b(?:nobody|somebody|everybody|anybody)\b`, "no client, unused, another process, all users", "body"),
	newPhrase(`\blook(?:s|ed|ing)? (?:at|whether|into)\b|\blook(?:s|ed|ing) like\b`, "checks, reads, inspects, resembles", "look"),
	newPhrase(`\b(?:is|are|was|were|be|being) told\b|\btold (?:to|that|of|which|where|what)\b`, "receives, is notified, is configured", "told"),
	newPhrase(`\b(?:for want of|in vain|all the same|at hand|lest|beside that|wherefrom|whither|not any longer|no longer than)\b`, "a plain word: without, unsuccessfully, nevertheless", "want", "vain", "same", "hand", "lest", "beside", "wh", "longer"),
}

// gerundError is an error that begins with a gerund.
var gerundError = newPhrase(`^[a-z]*(?:[^h]|[^t]h)ing [^\n]*%w`, `an imperative: "read X: %w"`, "%w")

func newPhrase(pattern, instead string, word ...string) phrase {
	return phrase{regexp.MustCompile(`(?i)` + strings.ReplaceAll(pattern, " ", `\s+`)), instead, word}
}

// prose is a comment, a string or a text file: pieces of text and their lines.
type prose struct {
	pieces    []piece
	separator string
}

type piece struct {
	line int
	text string
}

func (p prose) text() string {
	texts := make([]string, 0, len(p.pieces))
	for _, piece := range p.pieces {
		texts = append(texts, piece.text)
	}
	return strings.Join(texts, p.separator)
}

// faults lists the phrases that a text contains, as LINE: what is wrong.
func (p prose) faults(check ...phrase) []string {
	text := p.text()
	lower := strings.ToLower(text)
	var found []string
	for _, phrase := range check {
		if !slices.ContainsFunc(phrase.word, func(word string) bool { return strings.Contains(lower, word) }) {
			continue
		}
		for _, match := range phrase.pattern.FindAllStringIndex(text, -1) {
			words := strings.Join(strings.Fields(text[match[0]:match[1]]), " ")
			found = append(found, strconv.Itoa(p.lineAt(match[1]))+": "+strconv.Quote(words)+": write "+phrase.instead)
		}
	}
	return found
}

// lineAt is the line of the end of a match.
func (p prose) lineAt(end int) int {
	for _, piece := range p.pieces {
		if end -= len(piece.text); end <= 0 {
			return piece.line
		}
		end -= len(p.separator)
	}
	return 0
}

// proseOfText reads pages, manifests and scripts, with or without comment marks.
func proseOfText(content string) prose {
	p := prose{separator: "\n"}
	for i, line := range strings.Split(content, "\n") {
		p.pieces = append(p.pieces, piece{i + 1, strings.TrimLeft(line, "# \t")})
	}
	return p
}

// proseOfGo returns the comments and the string literals of a Go file. Comments on
// consecutive lines are one text, so are strings that are added up.
func proseOfGo(name string, content []byte) (comments, literals []prose) {
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(content))
	var tokens scanner.Scanner
	tokens.Init(file, content, nil, scanner.ScanComments)
	previous, lastLine := token.ILLEGAL, 0
	joins := false // whether a string follows another and a plus sign
	for {
		position, kind, text := tokens.Scan()
		line := file.Line(position)
		switch kind {
		case token.EOF:
			return comments, literals
		case token.COMMENT:
			if previous != token.COMMENT || line > lastLine+1 {
				comments = append(comments, prose{separator: "\n"})
			}
			last := &comments[len(comments)-1]
			for i, part := range strings.Split(text, "\n") {
				last.pieces = append(last.pieces, piece{line + i, strings.TrimLeft(part, "/* \t")})
			}
			lastLine = line + strings.Count(text, "\n")
		case token.STRING:
			value, err := strconv.Unquote(text)
			if err != nil {
				continue // the compiler reports it
			}
			if !joins {
				literals = append(literals, prose{})
			}
			last := &literals[len(literals)-1]
			for i, part := range strings.SplitAfter(value, "\n") {
				if text[0] != '`' {
					i = 0
				}
				last.pieces = append(last.pieces, piece{line + i, part})
			}
		}
		joins = kind == token.ADD && previous == token.STRING
		previous = kind
	}
}

func faultsOfFile(name string, content []byte) []string {
	if filepath.Ext(name) != ".go" {
		return proseOfText(string(content)).faults(phrases...)
	}
	var found []string
	comments, literals := proseOfGo(name, content)
	for _, p := range comments {
		found = append(found, p.faults(phrases...)...)
	}
	for _, p := range literals {
		if !strings.ContainsAny(p.text(), " \n") {
			continue // a name
		}
		found = append(found, p.faults(append(phrases, gerundError)...)...)
	}
	return found
}

// TestProse checks comments and strings of Go files, pages, manifests and scripts.
func TestProse(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (name == "bin" || name == "testdata" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		written := slices.Contains([]string{".go", ".md", ".yaml", ".yml", ".sh", ".tpl", ".txt"}, filepath.Ext(name)) || name == "Makefile"
		if !written || name == "prose_test.go" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil || generated.Match(content) {
			return err
		}
		for _, fault := range faultsOfFile(relative, content) {
			t.Errorf("%s:%s", relative, fault)
		}
		return nil
	})
	expect.NoError(t, err)
}

// habit is a construction that makes a comment hard to read if it is frequent.
type habit struct {
	phrase
	// most is the maximum per thousand lines of comments: the level of kine, kcp, Caddy, controller-runtime and
	// cert-manager.
	most float64
}

var habits = []habit{
	{newPhrase(`\b(?:is|are|was|were) (?:(?:in|of|for|by|from) which|when|where|why|what|which|how|whether)\b`,
		"a verb that says what it does, limits or selects", "wh", "how"), 2},
	{newPhrase(`\b(?:that|those) of\b`, "the noun again, or a genitive", "that", "those"), 0.5},
	{newPhrase(`\b(?:asks?|asked|asking|asleep|awake|believes?|complains?|patience|wakes?|woken)\b`,
		"requests, idle, waits, assumes, reports", "ask", "asleep", "awake", "believe", "complain", "patience", "wake", "woken"), 0},
}

// TestHabits counts habits in the comments of all Go files.
func TestHabits(t *testing.T) {
	t.Parallel()
	lines, found := 0, make([][]string, len(habits))
	eachFile(t, func(_ *testing.T, file sourceFile) {
		if file.generated() || strings.HasSuffix(file.name, "conventions/prose_test.go") {
			return
		}
		comments, _ := proseOfGo(file.name, file.content)
		for _, comment := range comments {
			lines += len(comment.pieces)
			for i, habit := range habits {
				for _, fault := range comment.faults(habit.phrase) {
					found[i] = append(found[i], file.name+":"+fault)
				}
			}
		}
	})
	for i, habit := range habits {
		rate := 1000 * float64(len(found[i])) / float64(lines)
		t.Logf("%.1f of %q per thousand lines of comments, the maximum is %.1f", rate, habit.pattern, habit.most)
		if rate > habit.most {
			t.Errorf("too many:\n%s", strings.Join(found[i], "\n"))
		}
	}
}
