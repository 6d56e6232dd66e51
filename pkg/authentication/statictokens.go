// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/annex-dev/annex/pkg/configfile"
)

// The columns of a token file. Groups are optional.
const (
	tokenColumn = iota
	userColumn
	uidColumn
	groupsColumn
	columns
)

// LoadStaticTokens reads a file of tokens as kube-apiserver does, but rejects lines
// that kube-apiserver skips or misreads. Errors name the line, and never a token.
func LoadStaticTokens(path string) (authenticator.Token, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	defer file.Close()
	reader := csv.NewReader(file)
	reader.FieldsPerRecord = -1 // readToken returns a better error
	tokens := map[string]*user.DefaultInfo{}
	var errs []error
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if broken := (*csv.ParseError)(nil); errors.As(err, &broken) {
			return nil, errors.Join(append(errs, &configfile.Error{File: path, Line: broken.Line, What: broken.Err.Error()})...)
		}
		if err != nil {
			return nil, fmt.Errorf("read the tokens of %s: %w", path, err)
		}
		if wrong := addToken(tokens, record); wrong != nil {
			wrong.File = path
			wrong.Line, _ = reader.FieldPos(0)
			errs = append(errs, wrong)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return tokenfile.New(tokens), nil
}

// addToken returns the error of a line.
func addToken(tokens map[string]*user.DefaultInfo, record []string) *configfile.Error {
	switch {
	case len(record) <= uidColumn:
		return &configfile.Error{What: fmt.Sprintf("must have at least a token, a user and a user id, has %d columns", len(record))}
	case len(record) > columns:
		return &configfile.Error{Field: "groups", What: `several groups must be in quotes: "group1,group2"`}
	case record[tokenColumn] == "":
		return &configfile.Error{Field: "token", What: "must not be empty"}
	case record[userColumn] == "":
		return &configfile.Error{Field: "user", What: "must not be empty"}
	case tokens[record[tokenColumn]] != nil:
		return &configfile.Error{Field: "token", What: fmt.Sprintf("is that of user %q too", tokens[record[tokenColumn]].Name)}
	}
	bearer := &user.DefaultInfo{Name: record[userColumn], UID: record[uidColumn]}
	if len(record) > groupsColumn {
		bearer.Groups = slices.DeleteFunc(strings.Split(record[groupsColumn], ","), func(group string) bool { return group == "" })
	}
	tokens[record[tokenColumn]] = bearer
	return nil
}
