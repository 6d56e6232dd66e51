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
	"github.com/annex-dev/annex/pkg/storage/compression"
)

// sentBytes is about how large a part is that is restored: decoding and writing it
// takes seconds at the most.
const sentBytes = 4 << 20

// sentPlain is about how large its objects are together before compression. Where they
// are encrypted, that is not known.
const sentPlain = 256 << 20

// archive is a backup that was read to its end once, so that it is known to be whole.
type archive struct {
	path      string
	header    backup.Header
	trailer   backup.Trailer
	resources map[string]*saved
	// order is that of the file.
	order []string
}

// saved is one resource of a backup.
type saved struct {
	name string
	// definition is made as it was, whatever is in it. Nil if there is none.
	definition *unstructured.Unstructured
	// crd is what is known of it here.
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

// each reads the file and calls back with every record.
func (a *archive) each(call func(backup.Record) error) (backup.Header, backup.Trailer, error) {
	in, err := os.Open(a.path)
	if err != nil {
		return backup.Header{}, backup.Trailer{}, err
	}
	defer in.Close() // it is only read
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

// resourceOf is the name of the resource that a key belongs to, if that has a group.
func resourceOf(key string) string {
	resource, _, found := backup.ResourceOf(key)
	if !found {
		return ""
	}
	return resource.String()
}

// parts hands the objects of some resources on, in parts of one resource each. Every
// resource has a part, also without objects.
func (a *archive) parts(wanted []*saved, send func(resource *saved, part []byte, count, size int64) error) error {
	byName, sent := map[string]*saved{}, map[string]bool{}
	for _, resource := range wanted {
		byName[resource.name] = resource
	}
	var p *sending
	flush := func() error {
		if p == nil {
			return nil
		}
		part, trailer, err := p.finish()
		if err != nil {
			return err
		}
		resource := p.resource
		p, sent[resource.name] = nil, true
		return send(resource, part, trailer.Objects, trailer.Bytes)
	}
	_, _, err := a.each(func(record backup.Record) error {
		resource := byName[resourceOf(record.Key)]
		if record.Kind != backup.KindObject || resource == nil {
			return nil
		}
		plain, _ := compression.PlainSize(record.Value)
		if p != nil && (p.resource != resource || p.buffer.Len()+len(record.Value) > sentBytes || p.plain+plain > sentPlain) {
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
		return p.write(record)
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

// sending is a part that is put together.
type sending struct {
	resource *saved
	buffer   bytes.Buffer
	writer   *backup.Writer
	plain    int64
}

func (a *archive) begin(resource *saved) (*sending, error) {
	p := &sending{resource: resource}
	header := a.header
	header.Resource = resource.name
	var err error
	if p.writer, err = backup.NewWriter(&p.buffer, header); err != nil {
		return nil, err
	}
	for _, dictionary := range resource.dictionaries {
		if err := p.write(dictionary); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *sending) write(record backup.Record) error { return p.writer.Write(record) }

func (p *sending) finish() ([]byte, backup.Trailer, error) {
	trailer, err := p.writer.Close()
	return p.buffer.Bytes(), trailer, err
}
