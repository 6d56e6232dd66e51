// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

//go:embed testdata/validation
var testdata embed.FS

// group is a valid object and what is made of it.
type group struct {
	// Title names the object in the names of cases.
	Title string `json:"title"`
	// Path is the URL path of the resource.
	Path string `json:"path"`
	// CreateOnly objects are not stored or cannot be updated.
	CreateOnly bool `json:"createOnly"`
	// Subresource is the subresource that updates go to. If it is empty, they go to the object.
	Subresource string `json:"subresource"`
	// Ignore are fields of responses that are not compared.
	Ignore []string `json:"ignore"`
	// Controlled names the servers that have a controller for the object's status.
	Controlled []string `json:"controlled"`
	// Object is valid.
	Object object `json:"object"`
	// Create has merge patches of the object, each of which makes a new object.
	Create map[string]object `json:"create"`
	// Update has merge patches of the object, each of which makes an update of the
	// stored object.
	Update map[string]object `json:"update"`
}

// TestValidation sends the same objects to both servers and compares the responses.
// All except the objects to update are dry runs: policies and webhooks must not apply
// to other cases.
func TestValidation(t *testing.T) {
	startServers(t)
	t.Cleanup(func() {
		for i := range differences {
			if d := &differences[i]; !d.found.Load() && !t.Failed() {
				t.Errorf("no case differs as %q: %s", d.cases, d.reason)
			}
		}
	})
	files, err := testdata.ReadDir("testdata/validation")
	expect.NoError(t, err)
	for _, file := range files {
		content, err := testdata.ReadFile("testdata/validation/" + file.Name())
		expect.NoError(t, err)
		var groups []group
		expect.NoError(t, yaml.UnmarshalStrict(content, &groups), "read %s", file.Name())
		for _, g := range groups {
			if g.Subresource == "" || g.CreateOnly {
				t.Run(g.Title+"/create", func(t *testing.T) { testCreate(t, g) })
			}
			if !g.CreateOnly {
				t.Cleanup(func() { removeFromMain(t, g) })
				t.Run(g.Title+"/update", func(t *testing.T) { testUpdate(t, g) })
			}
		}
	}
}

func testCreate(t *testing.T, g group) {
	t.Parallel()
	for name, sent := range cases(g.Object, g.Create) {
		// The name of the group's object may be taken by testUpdate.
		if metadata, ok := sent["metadata"].(object); ok && metadata["name"] != nil && metadata["name"] == objectName(g.Object) {
			sent = mergePatch(sent, object{"metadata": object{"name": "new-" + objectName(g.Object)}})
		}
		compare(t, g, name, http.MethodPost, g.Path+"?dryRun=All", func(*server) object { return sent }, nil)
	}
}

// testUpdate stores the object and sends updates of it.
func testUpdate(t *testing.T, g group) {
	t.Parallel()
	stored := map[*server]object{}
	for _, s := range servers {
		created, err := s.send(t.Context(), http.MethodPost, g.Path, g.Object)
		expect.NoError(t, err)
		if created.Code != http.StatusCreated {
			t.Fatalf("%s: %s", s.name, created)
		}
		if slices.Contains(g.Controlled, s.name) {
			created = s.controlled(t, g.Path+"/"+objectName(g.Object))
		}
		stored[s] = identityOf(created)
	}
	path := g.Path + "/" + objectName(g.Object)
	// A controller may write the status again.
	changed := func(s *server) bool {
		found, err := s.send(t.Context(), http.MethodGet, g.Path+"/"+objectName(g.Object), nil)
		expect.NoError(t, err)
		before := stored[s]
		stored[s] = identityOf(found)
		return found.Code == http.StatusOK && !reflect.DeepEqual(before, stored[s])
	}
	read := g
	if g.Controlled != nil {
		read.Ignore = []string{"status"}
	}
	compare(t, read, "stored", http.MethodGet, path, func(*server) object { return nil }, nil)
	if g.Subresource != "" {
		path += "/" + g.Subresource
	}
	for name, sent := range cases(g.Object, g.Update) {
		compare(t, g, name, http.MethodPut, path+"?dryRun=All", func(s *server) object {
			return mergePatch(stored[s], sent)
		}, changed)
	}
}

// identityOf returns what an update needs of a stored object.
func identityOf(stored response) object {
	metadata, _ := stored.Body["metadata"].(object)
	return object{"metadata": object{"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}}
}

// removeFromMain deletes the stored object of a group from the shared main cluster.
func removeFromMain(t *testing.T, g group) {
	t.Helper()
	deleted, err := servers[0].send(context.Background(), http.MethodDelete, g.Path+"/"+objectName(g.Object), object{})
	expect.Succeeds(t, err)
	if deleted.Code/100 != 2 && deleted.Code != http.StatusNotFound {
		t.Errorf("delete the stored %s: %s", g.Title, deleted)
	}
}

// controlled waits until a controller has written the status.
func (s *server) controlled(t *testing.T, path string) response {
	t.Helper()
	var last response
	poll.UntilDone(t, "a status of "+path, func() (bool, string) {
		var err error
		if last, err = s.send(t.Context(), http.MethodGet, path, nil); err != nil {
			return false, err.Error()
		}
		status, _ := last.Body["status"].(object)
		return len(status) > 0, last.String()
	})
	return last
}

// cases returns the objects that a group makes: the object, with each of the
// patches, and with each of the mutations.
func cases(base object, patches map[string]object) map[string]object {
	all := map[string]object{"unchanged": base}
	for name, patch := range patches {
		all[name] = mergePatch(base, patch)
	}
	maps.Copy(all, mutants(base))
	return all
}

func objectName(of object) string {
	metadata, _ := of["metadata"].(object)
	name, _ := metadata["name"].(string)
	return name
}

// compare sends the same request to both servers. After a conflict it sends another one if the object was changed.
func compare(t *testing.T, g group, name, method, path string, body func(*server) object, changed func(*server) bool) {
	t.Helper()
	var responses [2]response
	for i, s := range servers {
		received, err := s.send(t.Context(), method, path, body(s))
		expect.NoError(t, err)
		for received.Code == http.StatusConflict && changed != nil && changed(s) {
			received, err = s.send(t.Context(), method, path, body(s))
			expect.NoError(t, err)
		}
		normalize(received.Body)
		for _, key := range g.Ignore {
			delete(received.Body, key)
		}
		responses[i] = received
	}
	diff := gocmp.Diff(responses[0], responses[1])
	name = strings.TrimPrefix(t.Name(), "TestValidation/") + "/" + name
	known := differenceOf(name)
	switch {
	case known != nil && diff == "":
		t.Errorf("%s: no longer differs: %s", name, known.reason)
	case known != nil:
		known.found.Store(true)
	case diff != "":
		sent, err := json.Marshal(body(servers[1]))
		t.Errorf("%s: annex (+) differs from kube-apiserver (-): %v\n%s\nsent: %.2000s", name, err, diff, sent)
	}
}

// normalize removes values that differ between servers or between requests, and differences
// that are due to kube-apiserver's internal types.
func normalize(body object) {
	if metadata, ok := body["metadata"].(object); ok {
		if metadata["generateName"] != nil {
			delete(metadata, "name")
		}
		for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			delete(metadata, key)
		}
	}
	if message, ok := body["message"].(string); ok {
		body["message"] = normalText(message)
	}
	details, _ := body["details"].(object)
	if name, ok := details["name"].(string); ok {
		details["name"] = normalText(name)
	}
	delete(details, "uid")
	causes, _ := details["causes"].([]any)
	for _, cause := range causes {
		if cause, ok := cause.(object); ok {
			cause["message"] = normalText(fmt.Sprint(cause["message"]))
		}
	}
	slices.SortFunc(causes, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if details["group"] == "authorization.k8s.io" {
		delete(details, "kind") // which kube-apiserver leaves out
	}
}

var texts = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	// Fields of objects in messages have the names of internal types.
	{regexp.MustCompile(`((?:Invalid|Unsupported) value: )(?:[{\[].*?[}\]]+|null): `), "$1{}: "},
	{regexp.MustCompile(`UID in [a-z ]*: [-0-9a-f]{36}`), "UID"},
	// The causes have the rest, and in messages their order may be random.
	{regexp.MustCompile(`(?s)( is invalid: ).*`), "$1"},
	// Generated names end in random characters.
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-xxxxx"},
	{regexp.MustCompile(`^\w*(\.authorization\.k8s\.io "" is invalid)`), "$1"},
}

func normalText(text string) string {
	for _, t := range texts {
		text = t.pattern.ReplaceAllString(text, t.replacement)
	}
	return text
}
