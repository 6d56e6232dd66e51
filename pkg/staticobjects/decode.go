// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

// errEmpty is the error of a file without content: it was truncated, and is not written yet.
var errEmpty = errors.New("is empty: to remove its objects, delete it")

// maxLists bounds the lists in one another: the origin of an object names each.
const maxLists = 10

// Decode returns the objects of a file. Each document, in YAML or JSON, is an object or a list
// of objects. A file with an error has none, because the rest of it may be missing.
func Decode(source, file string, data []byte) ([]Object, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errEmpty
	}
	next := yamlDocuments(data)
	if isJSON(data) {
		next = jsonDocuments(data)
	}
	var objects []Object
	for number := 1; ; number++ {
		origin := fmt.Sprintf("%s#%d", file, number)
		document, err := next()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		var content any
		// It decodes integers as such.
		if err := utiljson.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		found, err := objectsOf(source, origin, content)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		objects = append(objects, found...)
	}
}

// yamlDocuments returns a function that returns the next document, as JSON.
func yamlDocuments(data []byte) func() ([]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	return func() ([]byte, error) {
		document, err := reader.Read()
		if err != nil {
			return nil, err
		}
		if size := objectsize.ExpandedYAML(document); size > maxBytes {
			return nil, fmt.Errorf("has %d bytes with its aliases replaced, at most %d are allowed", size, maxBytes)
		}
		// Strict: a key twice is an error.
		return yaml.YAMLToJSONStrict(document)
	}
}

// isJSON reports whether all documents are JSON, which need no separators. A mapping of YAML may
// begin as JSON does.
func isJSON(data []byte) bool {
	next := jsonDocuments(data)
	for {
		if _, err := next(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

func jsonDocuments(data []byte) func() ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	return func() ([]byte, error) {
		var document json.RawMessage
		err := decoder.Decode(&document)
		return document, err
	}
}

// objectsOf returns the object of a document, the objects of a list, or none of a document that
// has only comments.
func objectsOf(source, origin string, content any) ([]Object, error) {
	if content == nil {
		return nil, nil
	}
	object, ok := content.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object")
	}
	items, isList := object["items"].([]any)
	if kind, _ := object["kind"].(string); isList && strings.HasSuffix(kind, "List") {
		return objectsIn(source, origin, items)
	}
	if metadata, ok := object["metadata"].(map[string]any); !ok || metadata == nil {
		return nil, errors.New("metadata: must be set")
	}
	decoded, err := newObject(source, origin, object)
	if err != nil {
		return nil, err
	}
	return []Object{decoded}, nil
}

func objectsIn(source, origin string, items []any) ([]Object, error) {
	if strings.Count(origin, ".items[") >= maxLists {
		return nil, fmt.Errorf("more than %d lists in one another", maxLists)
	}
	var objects []Object
	for i, item := range items {
		found, err := objectsOf(source, fmt.Sprintf("%s.items[%d]", origin, i), item)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
