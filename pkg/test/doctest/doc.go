// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctest tests a page of the documentation: it types the commands word for word, in
// order, in one shell, and compares their output.
//
// It uses fenced blocks. Indented blocks are not run.
//
//   - A block of `sh` contains commands that succeed.
//   - A block of `console` contains commands after `$ ` (continued after `> ` or in a
//     here-document) with their output. A command fails if its output has a line that begins with
//     `Error`, `error` or `annex: `, or reports an object as invalid; the others succeed. `…`
//     matches any text, and alone on a line any lines; ages, times and column widths are ignored.
//     Read-only commands (`kubectl get`, `kubectl auth`, `grep` and others) are repeated until
//     the output matches.
//   - A block of any other language is written to the file that the paragraph above names last,
//     in backquotes. Without a file name it is ignored.
//   - `annex serve` runs in the background, as in another terminal: the next command is typed when
//     annex is ready. A second `annex serve` stops the first, as Ctrl-C does.
//
// The shell starts in an empty folder that is its home. 127.0.0.1:7443, and every other port of
// 127.0.0.1 above 999, is replaced by a free port.
package doctest
