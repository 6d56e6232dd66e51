// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
)

// snapshot has the names in OpenAPI documents and the hashes of their content.
type snapshot struct {
	// Paths and Definitions are of /openapi/v2.
	Paths       map[string]string `json:"paths"`
	Definitions map[string]string `json:"definitions"`
	// V3 are the documents below /openapi/v3.
	V3 map[string]string `json:"v3"`
}

// takeSnapshot reads all documents of the main cluster.
func (e *environment) takeSnapshot(ctx context.Context) (*snapshot, error) {
	var v2 struct {
		Paths       map[string]json.RawMessage `json:"paths"`
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if err := e.getJSON(ctx, "/openapi/v2", &v2); err != nil {
		return nil, err
	}
	if len(v2.Paths) == 0 {
		return nil, errors.New("/openapi/v2 has no paths")
	}
	taken := &snapshot{V3: map[string]string{}}
	var err error
	if taken.Paths, err = hashes(v2.Paths); err != nil {
		return nil, fmt.Errorf("/openapi/v2: %w", err)
	}
	if taken.Definitions, err = hashes(v2.Definitions); err != nil {
		return nil, fmt.Errorf("/openapi/v2: %w", err)
	}
	var v3 struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := e.getJSON(ctx, "/openapi/v3", &v3); err != nil {
		return nil, err
	}
	for path := range v3.Paths {
		// Without the hash in the query, so that no cached response is returned.
		var document json.RawMessage
		if err := e.getJSON(ctx, "/openapi/v3/"+path, &document); err != nil {
			return nil, err
		}
		if taken.V3[path], err = hash(document); err != nil {
			return nil, fmt.Errorf("/openapi/v3/%s: %w", path, err)
		}
	}
	return taken, nil
}

func (e *environment) getJSON(ctx context.Context, path string, into any) error {
	answer, err := e.getMain(ctx, path, "application/json")
	if err != nil || answer.status != http.StatusOK {
		return fmt.Errorf("%s: %s", path, outcome(answer, err))
	}
	if err := json.Unmarshal(answer.body, into); err != nil {
		return fmt.Errorf("%s is not JSON: %w", path, err)
	}
	return nil
}

func hashes(of map[string]json.RawMessage) (map[string]string, error) {
	all := map[string]string{}
	for name, content := range of {
		var err error
		if all[name], err = hash(content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// hash is independent of the order of keys.
func hash(content json.RawMessage) (string, error) {
	var parsed any
	if err := json.Unmarshal(content, &parsed); err != nil {
		return "", err
	}
	ordered, err := json.Marshal(parsed)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(ordered)
	return hex.EncodeToString(sum[:8]), nil
}

func (s *snapshot) write(path string) error {
	content, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("encode the summary: %w", err)
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}

func readSnapshot(path string) (*snapshot, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	read := &snapshot{}
	if err := json.Unmarshal(content, read); err != nil {
		return nil, fmt.Errorf("it was not written by --save: %w", err)
	}
	if len(read.Paths) == 0 {
		return nil, errors.New("it was not written by --save: it has no paths")
	}
	return read, nil
}

// change is a changed entry.
type change struct {
	entry, how string
}

const (
	vanished = "has vanished"
	appeared = "has appeared"
	differs  = "was changed"
)

// changes lists the changes outside of groups, and counts those in groups, which are
// expected.
func (s *snapshot) changes(now *snapshot, groups []string) (outside []change, within int) {
	for _, part := range []struct {
		what        string
		before, now map[string]string
	}{
		{"path %s of v2", s.Paths, now.Paths},
		{"definition %s of v2", s.Definitions, now.Definitions},
		{"document %s of v3", s.V3, now.V3},
	} {
		names := maps.Clone(part.before)
		maps.Copy(names, part.now)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			before, had := part.before[name]
			after, has := part.now[name]
			if had && has && before == after {
				continue
			}
			if inGroups(name, groups) {
				within++
				continue
			}
			how := differs
			if !has {
				how = vanished
			} else if !had {
				how = appeared
			}
			outside = append(outside, change{fmt.Sprintf(part.what, name), how})
		}
	}
	return outside, within
}
