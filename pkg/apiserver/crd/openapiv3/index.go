// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapiv3

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/version"
)

// index has the group versions of all definitions by the path of their document.
type index struct {
	versions map[string]*groupVersion
	// list is the encoded list of documents, once it was asked for.
	list atomic.Pointer[[]byte]
}

// groupVersion is what the document of a group version is built from.
type groupVersion struct {
	// path is the end of the path of the document: apis/GROUP/VERSION.
	path, version string
	definitions   []*apiextensionsv1.CustomResourceDefinition
	// hash is another one when the document may be another one. It is the same in all replicas.
	hash string
}

func newIndex(definitions []*apiextensionsv1.CustomResourceDefinition) *index {
	definitions = slices.SortedFunc(slices.Values(definitions), func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return strings.Compare(a.Name, b.Name)
	})
	versions := map[string]*groupVersion{}
	for _, definition := range definitions {
		if !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
			continue
		}
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
