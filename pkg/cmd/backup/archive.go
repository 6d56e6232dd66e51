// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
)

// Approximate limits of a part, so that decoding and writing it takes at most seconds.
// The uncompressed size of encrypted objects is unknown and not limited.
const (
	maxPartBytes      = 4 << 20
	maxPartPlainBytes = 256 << 20
)

// archive is a backup file that was read once, and so is known to be complete.
type archive struct {
	path      string
	header    backup.Header
	trailer   backup.Trailer
	resources map[string]*saved
	// order has the names in the order of the file.
	order []string
}

// saved is one resource of a backup.
type saved struct {
	name string
	// definition is restored unchanged. Nil if there is none.
	definition *unstructured.Unstructured
	// crd has the fields of definition that this program knows.
	crd          apiextensionsv1.CustomResourceDefinition
	hosted       *hostingv1alpha1.HostedResource
	dictionaries []backup.Record
	objects      int64
}

// openArchive reads a file to its end.
func openArchive(path string) (*archive, error) {
	a := &archive{path: path, resources: map[string]*saved{}}
	header, trailer, err := a.each(func(record backup.Record) error {
		switch record.Kind {
		case backup.KindManifest:
			return a.manifest(record)
		case backup.KindDictionary:
			if of, found := backup.DictionaryOf(record.Key); found && a.resources[of.String()] != nil {
				resource := a.resources[of.String()]
				resource.dictionaries = append(resource.dictionaries, record)
			}
		case backup.KindObject:
			if found := a.resources[resourceOf(record.Key)]; found != nil {
				found.objects++
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a.header, a.trailer = header, trailer
	return a, nil
}

// each reads the file and calls call with every record.
func (a *archive) each(call func(backup.Record) error) (backup.Header, backup.Trailer, error) {
	in, err := os.Open(a.path)
	if err != nil {
		return backup.Header{}, backup.Trailer{}, err
	}
	defer in.Close()
	return readRecords(in, call)
}

func (a *archive) manifest(record backup.Record) error {
	kind, name := path.Split(record.Key)
	found := a.resources[name]
	if found == nil {
		found = &saved{name: name}
		a.resources[name], a.order = found, append(a.order, name)
	}
	switch kind {
	case hostedKey:
		found.hosted = &hostingv1alpha1.HostedResource{}
		if err := json.Unmarshal(record.Value, found.hosted); err != nil {
			return fmt.Errorf("read its hostedresource %s: %w", name, err)
		}
	case definitionKey:
		found.definition = &unstructured.Unstructured{}
		if err := found.definition.UnmarshalJSON(record.Value); err != nil {
			return fmt.Errorf("read its customresourcedefinition %s: %w", name, err)
		}
		if err := json.Unmarshal(record.Value, &found.crd); err != nil {
			return fmt.Errorf("read its customresourcedefinition %s: %w", name, err)
		}
	}
	return nil
}

// resourceOf returns the name of a key's resource, or "" for a resource without a group.
func resourceOf(key string) string {
	resource, _, found := backup.ResourceOf(key)
	if !found {
		return ""
	}
	return resource.String()
}

// parts calls send with the objects of the wanted resources, in parts of one resource
// each. A resource without objects has one empty part.
func (a *archive) parts(wanted []*saved, send func(resource *saved, part []byte, count, size int64) error) error {
	byName, sent := map[string]*saved{}, map[string]bool{}
	for _, resource := range wanted {
		byName[resource.name] = resource
	}
	var p *partWriter
	flush := func() error {
		if p == nil {
			return nil
		}
		trailer, err := p.Close()
		if err != nil {
			return err
		}
		done := p
		p, sent[done.resource.name] = nil, true
		return send(done.resource, done.buffer.Bytes(), trailer.Objects, trailer.Bytes)
	}
	_, _, err := a.each(func(record backup.Record) error {
		resource := byName[resourceOf(record.Key)]
		if record.Kind != backup.KindObject || resource == nil {
			return nil
		}
		plain, _ := compression.PlainSize(record.Value)
		if p != nil && (p.resource != resource || p.buffer.Len()+len(record.Value) > maxPartBytes || p.plain+plain > maxPartPlainBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		if p == nil {
			var err error
			if p, err = a.begin(resource); err != nil {
				return err
			}
		}
		p.plain += plain
		return p.Write(record)
	})
	if err == nil {
		err = flush()
	}
	for _, resource := range wanted {
		if err == nil && !sent[resource.name] {
			if p, err = a.begin(resource); err == nil {
				err = flush()
			}
		}
	}
	return err
}

type partWriter struct {
	*backup.Writer
	resource *saved
	buffer   bytes.Buffer
	plain    int64
}

func (a *archive) begin(resource *saved) (*partWriter, error) {
	p := &partWriter{resource: resource}
	header := a.header
	header.Resource = resource.name
	var err error
	if p.Writer, err = backup.NewWriter(&p.buffer, header); err != nil {
		return nil, err
	}
	for _, dictionary := range resource.dictionaries {
		if err := p.Write(dictionary); err != nil {
			return nil, err
		}
	}
	return p, nil
}
