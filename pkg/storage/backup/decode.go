// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// ErrUnreadable marks a value that the keys and dictionaries at hand do not open.
var ErrUnreadable = errors.New("cannot be read")

// ResourceOf says which object a key below the prefix is of, as "<namespace>/<name>"
// or "<name>". Kubernetes' own kinds have no group in their keys: they are not found.
func ResourceOf(key string) (resource schema.GroupResource, object string, found bool) {
	group, rest, _ := strings.Cut(key, "/")
	plural, object, found := strings.Cut(rest, "/")
	if !found || !strings.Contains(group, ".") {
		return schema.GroupResource{}, "", false
	}
	return schema.GroupResource{Group: group, Resource: plural}, object, true
}

// DictionaryOf says which resource a dictionary is of, by its key below the prefix.
func DictionaryOf(key string) (resource schema.GroupResource, found bool) {
	below, found := strings.CutPrefix(key, strings.TrimPrefix(keys.AllDictionaries(""), keys.Root("")))
	if !found {
		return schema.GroupResource{}, false
	}
	resource, _, found = ResourceOf(below)
	return resource, found
}

// decode returns what a value holds, with an error if that is not the object of its key.
func decode(ctx context.Context, decoder value.Transformer, prefix string, record Record) ([]byte, error) {
	plain, _, err := decoder.TransformFromStorage(ctx, record.Value, value.DefaultContext(prefix+record.Key))
	if err == nil {
		_, object, _ := ResourceOf(record.Key)
		err = checkObject(object, plain)
	}
	if err != nil {
		return plain, fmt.Errorf("object %s %w: %w", record.Key, ErrUnreadable, err)
	}
	return plain, nil
}

// protobufMagic begins what is not JSON, of kinds that are compiled in. etcd and
// encryption see to it that it is what was written.
var protobufMagic = []byte("k8s\x00")

// checkObject makes sure that a value is the object that its key says.
func checkObject(name string, plain []byte) error {
	if bytes.HasPrefix(plain, protobufMagic) {
		return nil
	}
	var found struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			UID       string `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(plain, &found); err != nil {
		return errors.New("it is no object in JSON; is the key that it was encrypted with missing?")
	}
	if got := path.Join(found.Metadata.Namespace, found.Metadata.Name); got != name || found.Metadata.UID == "" {
		return fmt.Errorf("the object is that of %q", got)
	}
	return nil
}

// maxPlain bounds what the values of a part are together once they are decoded. What
// clients send is far below: parts of some MiB, or one object.
const maxPlain = 1 << 30

// ErrTooLarge marks a part whose values are too much for one request.
var ErrTooLarge = fmt.Errorf("the objects of the part have more than %d bytes once they are decoded: send fewer", maxPlain)

// decoded is a part of which every value was decoded once. They are decoded again one
// by one when they are written: together they may be much larger than the part.
type decoded struct {
	header       Header
	dictionaries []object
	decoder      value.Transformer
	objects      []Record
	// unreadable are the keys of those objects that were left out.
	unreadable []string
}

// object is one of a backup, or a dictionary, decoded.
type object struct {
	key   string // below the root
	value []byte
}

// decode reads a whole part, and every value of it.
func (t *Target) decode(ctx context.Context, resource schema.GroupResource, in io.Reader, skipUnreadable bool) (*decoded, error) {
	reader, err := NewReader(in)
	if err != nil {
		return nil, err
	}
	p := &decoded{header: reader.Header()}
	var dictionaries, objects []Record
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch record.Kind {
		case KindDictionary:
			dictionaries = append(dictionaries, record)
		case KindObject:
			objects = append(objects, record)
		}
	}
	if err := t.decodeDictionaries(ctx, resource, dictionaries, p, skipUnreadable); err != nil {
		return nil, err
	}
	return p, t.decodeObjects(ctx, resource, dictionaries, objects, p, skipUnreadable)
}

func (t *Target) decodeObjects(ctx context.Context, resource schema.GroupResource, dictionaries, objects []Record, p *decoded, skipUnreadable bool) error {
	byKey := map[string][]byte{}
	for _, dictionary := range dictionaries {
		byKey[dictionary.Key] = dictionary.Value
	}
	var err error
	if p.decoder, err = t.Decoder(resource, byKey, p.header.Prefix); err != nil {
		return fmt.Errorf("%s: %w", resource, err)
	}
	size := 0
	for _, record := range objects {
		if found, _, _ := ResourceOf(record.Key); found != resource {
			return fmt.Errorf("%w: %s is no object of %s", ErrDamaged, record.Key, resource)
		}
		plain, err := decode(ctx, p.decoder, p.header.Prefix, record)
		if size += len(plain); size > maxPlain {
			return ErrTooLarge
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			p.objects = append(p.objects, record)
		case skipUnreadable:
			p.unreadable = append(p.unreadable, record.Key)
		default:
			return err
		}
	}
	return nil
}

// decodeDictionaries takes the encryption from the dictionaries of a resource. One
// that cannot be read is missed by the objects that need it.
func (t *Target) decodeDictionaries(ctx context.Context, resource schema.GroupResource, dictionaries []Record, p *decoded, skipUnreadable bool) error {
	if t.Encryption == nil {
		return nil
	}
	encryption := t.Encryption(resource)
	for _, record := range dictionaries {
		if found, _ := DictionaryOf(record.Key); found != resource {
			return fmt.Errorf("%w: %s is no dictionary of %s", ErrDamaged, record.Key, resource)
		}
		plain, _, err := encryption.TransformFromStorage(ctx, record.Value, value.DefaultContext(p.header.Prefix+record.Key))
		switch {
		case err == nil:
			p.dictionaries = append(p.dictionaries, object{record.Key, plain})
		case skipUnreadable && ctx.Err() == nil:
		default:
			return fmt.Errorf("dictionary %s %w: %w", record.Key, ErrUnreadable, err)
		}
	}
	return nil
}
