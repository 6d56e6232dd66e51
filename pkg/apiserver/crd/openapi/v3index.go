// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"crypto/sha256"
	"fmt"
	"sync/atomic"

	"github.com/annex-dev/annex/pkg/version"
)

// index has the group versions of all definitions by the path of their document.
type index struct {
	versions map[string]*groupVersion
	// list is the encoded list of documents, after the first request for it.
	list atomic.Pointer[[]byte]
}

// groupVersion has what the document of a group version is built from.
type groupVersion struct {
	// path is the end of the path of the document: apis/GROUP/VERSION.
	path, version string
	definitions   []*crd
	// hash changes whenever the document may change. It is the same in all replicas.
	hash string
}

func newIndex(definitions []*crd) *index {
	versions := map[string]*groupVersion{}
	for _, definition := range definitions {
		for i := range definition.Spec.Versions {
			served := &definition.Spec.Versions[i]
			if !served.Served {
				continue
			}
			path := "apis/" + definition.Spec.Group + "/" + served.Name
			if versions[path] == nil {
				versions[path] = &groupVersion{path: path, version: served.Name}
			}
			versions[path].definitions = append(versions[path].definitions, definition)
		}
	}
	for _, g := range versions {
		g.setHash()
	}
	return &index{versions: versions}
}

// setHash computes the hash from what changes with the spec of a definition. Annex's version
// stands for the code that builds documents.
func (g *groupVersion) setHash() {
	hash := sha256.New()
	fmt.Fprintln(hash, version.Annex(), version.Commit())
	for _, definition := range g.definitions {
		fmt.Fprintln(hash, definition.UID, definition.Generation)
	}
	g.hash = fmt.Sprintf("%X", hash.Sum(nil))
}
