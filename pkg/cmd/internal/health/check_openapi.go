// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkOpenAPI checks whether the main cluster's OpenAPI documents are complete, on which
// kubectl, Helm and Argo CD depend, and compares them with the snapshot of --compare.
func checkOpenAPI(ctx context.Context, e *environment) []Finding {
	published := e.published()
	now, err := e.takeSnapshot(ctx, published)
	switch {
	case err != nil && ctx.Err() != nil:
		return []Finding{warn(e.Program+" doctor", "the main cluster is too slow to read its OpenAPI documents in %s. Try again when it has less load: %v", checkTimeout, err)}
	case err != nil:
		return []Finding{fail("kubectl get --raw /openapi/v2 > /dev/null", "the main cluster's OpenAPI documents: %v", err)}
	}
	var findings []Finding
	for i := range published {
		spec := &published[i].Spec
		if path := "apis/" + spec.Group + "/" + spec.Version; now.V3[path] == "" {
			findings = append(findings, fail("kubectl get --raw /openapi/v3", "the main cluster has no OpenAPI v3 document of %s", path))
		}
	}
	if e.Save != "" {
		if err := now.write(e.Save); err != nil {
			findings = append(findings, fail(e.Program+" doctor --save /tmp/openapi.json", "--save %s: %v", e.Save, err))
		} else {
			findings = append(findings, ok("written to %s", e.Save))
		}
	}
	if e.Compare != "" {
		findings = append(findings, e.compareSnapshot(now)...)
	}
	return okBefore(findings, "v2 has %d paths and %d definitions, v3 has %d documents", len(now.Paths), len(now.Definitions), len(now.V3))
}

// compareSnapshot reports what has changed outside of the groups that are annex's.
func (e *environment) compareSnapshot(now *snapshot) []Finding {
	before, err := readSnapshot(e.Compare)
	if err != nil {
		return []Finding{fail(e.Program+" doctor --save "+e.Compare, "--compare %s: %v", e.Compare, err)}
	}
	changes, within := before.changes(now, e.groupsOfAnnex())
	// New entries, often of a CRD that a user has installed, come last.
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(b.how, a.how) })
	var findings []Finding
	const enough = 10
	for i, change := range changes {
		if i == enough {
			findings = append(findings, warn("", "and %d more changes outside of annex's groups", len(changes)-enough))
			break
		}
		report := fail
		if change.how == appeared {
			// Users may have installed CRDs.
			report = warn
		}
		findings = append(findings, report(e.logs(), "since %s: %s %s", e.Compare, change.entry, change.how))
	}
	return orOK(findings, "since %s nothing has changed outside of annex's groups, and %d entries inside them", e.Compare, within)
}

func (e *environment) groupsOfAnnex() []string {
	groups := []string{hostingv1alpha1.GroupName}
	for _, route := range e.routes {
		if _, published := route.Labels[hostingv1alpha1.PublishedByLabel]; published {
			groups = append(groups, route.Spec.Group)
		}
	}
	return groups
}

// inGroups reports whether an entry of a document belongs to one of the groups.
// Definitions are named by the group in reverse, annex's own by its Go package.
func inGroups(entry string, groups []string) bool {
	for _, group := range groups {
		path := "apis/" + group
		trimmed := strings.Trim(entry, "/")
		if trimmed == path || strings.HasPrefix(trimmed, path+"/") || strings.HasPrefix(entry, reversed(group)+".") {
			return true
		}
	}
	return strings.HasPrefix(entry, "com.github.annex-dev.annex.")
}

func reversed(group string) string {
	labels := strings.Split(group, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// snapshot has the names in OpenAPI documents and the hashes of their content.
type snapshot struct {
	// Paths and Definitions are of /openapi/v2.
	Paths       map[string]string `json:"paths"`
	Definitions map[string]string `json:"definitions"`
	// V3 are the documents below /openapi/v3.
	V3 map[string]string `json:"v3"`
}

// takeSnapshot reads the documents of the main cluster. The v3 documents have megabytes: without --save and --compare
// it reads only the ones that annex has published, and takes the hashes in the URLs of the others.
func (e *environment) takeSnapshot(ctx context.Context, published []apiregistrationv1.APIService) (*snapshot, error) {
	var v2 struct {
		Paths       map[string]any `json:"paths"`
		Definitions map[string]any `json:"definitions"`
	}
	if _, err := e.decode(ctx, "/openapi/v2", applicationJSON, &v2); err != nil {
		return nil, err
	}
	if len(v2.Paths) == 0 {
		return nil, errors.New("/openapi/v2 has no paths")
	}
	taken := &snapshot{Paths: hashes(v2.Paths), Definitions: hashes(v2.Definitions), V3: map[string]string{}}
	var v3 struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if _, err := e.decode(ctx, "/openapi/v3", applicationJSON, &v3); err != nil {
		return nil, err
	}
	needed := sets.New[string]()
	for i := range published {
		needed.Insert("apis/" + published[i].Spec.Group + "/" + published[i].Spec.Version)
	}
	for path, of := range v3.Paths {
		if e.Save == "" && e.Compare == "" && !needed.Has(path) {
			taken.V3[path] = of.ServerRelativeURL
			continue
		}
		// Without the hash in the query, so that no cached response is returned.
		var document any
		if _, err := e.decode(ctx, "/openapi/v3/"+path, applicationJSON, &document); err != nil {
			return nil, err
		}
		taken.V3[path] = hash(document)
	}
	return taken, nil
}

func hashes(of map[string]any) map[string]string {
	all := map[string]string{}
	for name, content := range of {
		all[name] = hash(content)
	}
	return all
}

// hash returns the hash of decoded JSON. The order of keys makes no difference.
func hash(content any) string {
	ordered, _ := json.Marshal(content) // what was decoded can be encoded
	sum := sha256.Sum256(ordered)
	return hex.EncodeToString(sum[:8])
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
