// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// repeats is the number of reads of a document that must not change. Without annex's filter about a
// third of the reads came from the other server.
const repeats = 40

// documents are the OpenAPI documents of a server.
type documents struct {
	// paths and definitions of v2, undecoded.
	paths, definitions map[string]json.RawMessage
	// index of v3: links with hashes, by path.
	index map[string]string
}

// readDocuments waits until the main cluster has complete documents, if it was just started, and none
// of definitions that an earlier test has deleted.
func readDocuments(t *testing.T, config *restclient.Config) documents {
	t.Helper()
	client, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	var found documents
	poll.UntilNoError(t, "read the main cluster's OpenAPI documents", func() error {
		// An attempt that lasts does not hide what the others have seen.
		ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout/4)
		defer cancel()
		if found, err = tryReadDocuments(ctx, client, config.Host); err != nil {
			return err
		}
		return found.complete()
	})
	return found
}

// complete returns an error if a document lacks what every main cluster serves, or has what tests define.
func (d documents) complete() error {
	for _, version := range []string{"api/v1", "apis/apiextensions.k8s.io/v1", "apis/apiregistration.k8s.io/v1", "version"} {
		if d.index[version] == "" {
			return fmt.Errorf("no %s in OpenAPI v3", version)
		}
	}
	for version := range d.index {
		if strings.Contains(version, ".example.") {
			return fmt.Errorf("%s is still in OpenAPI v3", version)
		}
	}
	for path := range d.paths {
		if strings.Contains(path, ".example.") {
			return fmt.Errorf("%s is still in OpenAPI v2", path)
		}
	}
	return nil
}

func tryReadDocuments(ctx context.Context, client *http.Client, host string) (documents, error) {
	var v2 struct{ Paths, Definitions map[string]json.RawMessage }
	var v3 struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	for path, into := range map[string]any{"/openapi/v2": &v2, "/openapi/v3": &v3} {
		got, err := clients.Send(ctx, client, http.MethodGet, host+path, "")
		if err != nil {
			return documents{}, err
		}
		if got.Code != http.StatusOK {
			return documents{}, fmt.Errorf("%s: %s", path, got)
		}
		if err := json.Unmarshal(got.Body, into); err != nil {
			return documents{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	found := documents{paths: v2.Paths, definitions: v2.Definitions, index: map[string]string{}}
	for path, entry := range v3.Paths {
		found.index[path] = entry.ServerRelativeURL
	}
	return found, nil
}

func (c *endpoint) documents(t *testing.T) documents {
	t.Helper()
	found, err := tryReadDocuments(t.Context(), c.HTTP, c.Config.Host)
	expect.NoError(t, err)
	return found
}

var definitionReference = regexp.MustCompile(`"\$ref":\s*"#/definitions/([^"]+)"`)

// checkUnchanged fails unless every entry from before annex is unchanged, and all new entries
// are annex's.
func checkUnchanged(t *testing.T, before, after documents) {
	t.Helper()
	isNew := func(name string) bool {
		return strings.Contains(name, hostingv1alpha1.SchemeGroupVersion.Group) || strings.Contains(name, "noninterference.example.com")
	}
	compare := func(what string, before, after map[string]string) {
		t.Helper()
		for name, content := range before {
			if now, ok := after[name]; !ok {
				t.Errorf("%s %s was removed", what, name)
			} else if now != content {
				t.Errorf("%s %s changed from\n%s\nto\n%s", what, name, content, now)
			}
		}
		for name := range after {
			if _, ok := before[name]; !ok && !isNew(name) && !strings.HasPrefix(name, "com.github.annex-dev.") && !strings.HasPrefix(name, "com.example.noninterference.") {
				t.Errorf("%s %s is new", what, name)
			}
		}
	}
	compare("path", texts(before.paths), texts(after.paths))
	compare("definition", texts(before.definitions), texts(after.definitions))
	compare("version", before.index, after.index)

	for _, parts := range []map[string]json.RawMessage{after.paths, after.definitions} {
		for name, content := range parts {
			for _, reference := range definitionReference.FindAllSubmatch(content, -1) {
				if _, ok := after.definitions[string(reference[1])]; !ok {
					t.Errorf("%s refers to the missing definition %s", name, reference[1])
				}
			}
		}
	}
}

func texts(raw map[string]json.RawMessage) map[string]string {
	converted := map[string]string{}
	for name, content := range raw {
		converted[name] = string(content)
	}
	return converted
}

// readRepeatedly fails unless a path returns the same bytes each time.
func (c *endpoint) readRepeatedly(t *testing.T, path string) clients.Response {
	t.Helper()
	first := c.get(t, path)
	if first.Code != http.StatusOK {
		t.Fatalf("%s: %s", path, first)
	}
	for i := range repeats {
		again := c.get(t, path)
		if again.Code != http.StatusOK || sha256.Sum256(again.Body) != sha256.Sum256(first.Body) {
			t.Fatalf("%s: read %d differs from the first:\n%s\nand\n%s", path, i, first, again)
		}
	}
	return first
}

func testOpenAPI(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	mainClients := main(t)
	poll.Until(t, "the main cluster's documents contain annex's resources", func() string {
		now := mainClients.documents(t)
		for _, version := range []string{hostingv1alpha1.SchemeGroupVersion.String(), w.group + "/v1"} {
			if now.index["apis/"+version] == "" {
				return version + " is not in v3"
			}
		}
		for _, path := range []string{"/apis/hosting.annex.dev/v1alpha1/stores/{name}", "/apis/" + w.group + "/v1/namespaces/{namespace}/widgets/{name}"} {
			if now.paths[path] == nil {
				return path + " is not in v2"
			}
		}
		return ""
	})
	checkUnchanged(t, s.before, mainClients.documents(t))
	for _, path := range []string{"/openapi/v3/version", "/openapi/v3/apis/apiextensions.k8s.io/v1", "/openapi/v3/apis/apiregistration.k8s.io/v1", "/openapi/v3/apis/" + w.group + "/v1"} {
		mainClients.readRepeatedly(t, path)
	}
	// An outdated link is served, not redirected.
	mainClients.get(t, "/openapi/v3/apis/hosting.annex.dev/v1alpha1?hash=OLD").Expect(t, http.StatusOK, "a link with the hash of an older document")
	own := s.own(t).documents(t)
	for _, version := range []string{"apis/apiextensions.k8s.io/v1", "apis/apiregistration.k8s.io/v1", "version"} {
		if own.index[version] == "" {
			t.Errorf("annex's own documents lack %s", version)
		}
	}
}

// testOpenAPIOfUnpublishedGroup: annex does not publish a group of which the main cluster has
// CRDs, and leaves it out of its documents.
func testOpenAPIOfUnpublishedGroup(t *testing.T, s *sharedAnnex) {
	group := newGroup()
	main(t).define(t, newCRD(t, group, "widgets", "Widget"))
	s.own(t).define(t, newCRD(t, group, "widgets", "Widget"))
	// OpenAPI aggregation of kube-apiserver has failed on paths that are a prefix of another.
	s.own(t).define(t, newCRD(t, group, "widg", "Short"))
	mainClients := main(t)
	path := "apis/" + group + "/v1"
	poll.UntilDone(t, "the main cluster documents its CRD", func() (bool, string) {
		now := mainClients.documents(t)
		return now.index[path] != "" && now.paths["/"+path+"/widgets"] != nil, "not yet"
	})
	checkUnchanged(t, s.before, mainClients.documents(t))
	mainClients.readRepeatedly(t, "/openapi/v3/"+path)
}

// testNewKindsAreDiscovered: a kind is discovered once it is served, also in a version that is
// published already.
func testNewKindsAreDiscovered(t *testing.T, s *sharedAnnex) {
	own, mainClients := s.own(t), main(t)
	discovered := func(group string, kinds int) {
		definedAt := time.Now()
		poll.Until(t, fmt.Sprintf("%d kinds of %s are discovered", kinds, group), func() string {
			return isDiscovered(t, mainClients, group, kinds)
		})
		// By itself the main cluster fetches discovery once a minute.
		t.Logf("%d kinds of %s were discovered after %s", kinds, group, time.Since(definedAt))
	}
	var defining sync.WaitGroup
	for range 10 {
		group := newGroup()
		defining.Go(func() {
			definitions := own.CRDs()
			for i, kind := range []string{"Apple", "Pear"} {
				if _, err := definitions.Create(t.Context(), newCRD(t, group, fmt.Sprintf("kind%ds", i), kind), metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				discovered(group, i+1)
			}
		})
	}
	defining.Wait()
}
