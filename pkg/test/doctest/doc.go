// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctest follows a page of the documentation as a reader would: it types the
// commands word for word, in order, in one shell, and compares what they print.
//
// What counts are fenced blocks; indented ones are for what cannot be run.
//
//   - A block of `sh` holds commands that succeed.
//   - A block of `console` holds commands after `$ ` (more lines of one after `> `,
//     or in a here-document) and what they print. A command that prints a line that
//     begins with `Error`, `error` or `annex: `, or says that an object is invalid, fails, the others succeed. `…` stands for
//     anything, a line of it for any lines; ages, times and the width of columns do
//     not matter. What only reads (`kubectl get`, `kubectl auth`, `grep` and so on) is
//     typed again until it prints that: things take a moment to come about.
//   - A block of any other language is written to the file that the paragraph above
//     it names last, in backquotes; without one it is not looked at.
//   - `annex serve` runs as in a terminal of its own: the next command is typed when
//     annex is ready. A second `annex serve` stops the first, as Ctrl-C does.
//
// The shell starts in an empty folder that is its home. annex gets a port that is
// free, and where the page says 127.0.0.1:7443 that port is meant; so for any other
// port of 127.0.0.1 above 999 that the page names.
package doctest
