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
	"maps"
	"path"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// ErrUnreadable means that a value cannot be decoded with the available keys and dictionaries.
var ErrUnreadable = errors.New("cannot be read")

// ResourceOf returns the resource of a key below the prefix, and its object as
// "<namespace>/<name>" or "<name>". It supports only keys with a group. The keys of
// Kubernetes' own kinds have none.
func ResourceOf(key string) (resource schema.GroupResource, object string, found bool) {
	group, rest, _ := strings.Cut(key, "/")
	plural, object, found := strings.Cut(rest, "/")
	if !found || !strings.Contains(group, ".") {
		return schema.GroupResource{}, "", false
	}
	return schema.GroupResource{Group: group, Resource: plural}, object, true
}

// DictionaryOf returns the resource of a dictionary's key below the prefix.
func DictionaryOf(key string) (resource schema.GroupResource, found bool) {
	below, found := strings.CutPrefix(key, strings.TrimPrefix(keys.AllDictionaries(""), keys.Root("")))
	if !found {
		return schema.GroupResource{}, false
	}
	resource, _, found = ResourceOf(below)
	return resource, found
}

// decode decodes a value, and checks that it is the object of its key.
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

// protobufMagic begins objects of compiled-in kinds, which are stored in protobuf.
var protobufMagic = []byte("k8s\x00")

func checkObject(name string, plain []byte) error {
	read := readJSON
	if bytes.HasPrefix(plain, protobufMagic) {
		read = readProtobuf
	}
	found, err := read(plain)
	if err != nil {
		return err
	}
	if got := path.Join(found.Namespace, found.Name); got != name || found.UID == "" {
		return fmt.Errorf("it is the object %q", got)
	}
	return nil
}

// objectIdentity identifies an object.
type objectIdentity struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
}

func readJSON(plain []byte) (objectIdentity, error) {
	var found struct {
		Metadata objectIdentity `json:"metadata"`
	}
	if err := json.Unmarshal(plain, &found); err != nil {
		return objectIdentity{}, errors.New("it is not a JSON object; is its encryption key missing?")
	}
	return found.Metadata, nil
}

func readProtobuf(plain []byte) (objectIdentity, error) {
	var object runtime.Unknown
	if err := object.Unmarshal(plain[len(protobufMagic):]); err != nil {
		return objectIdentity{}, fmt.Errorf("it is not an object in protobuf: %w", err)
	}
	// Every kind has its metadata in the same field.
	var found metav1.PartialObjectMetadata
	if err := found.Unmarshal(object.Raw); err != nil {
		return objectIdentity{}, fmt.Errorf("it is not an object in protobuf: %w", err)
	}
	return objectIdentity{found.Name, found.Namespace, found.UID}, nil
}

// maxPlain bounds the total size of a part's values after decoding. Parts of well-behaved
// clients are much smaller.
const maxPlain = 1 << 30

// ErrTooLarge means that the values of a part are too large for one request.
var ErrTooLarge = fmt.Errorf("the objects of the part have more than %d bytes once they are decoded: send fewer", maxPlain)

// decoded is a part with values that can be decoded. They are decoded again one by one when
// they are written, because together they may be much larger than the part.
type decoded struct {
	header       Header
	dictionaries []object
	decoder      value.Transformer
	objects      []Record
	// unreadable are the keys of omitted objects.
	unreadable []string
}

// object is a decoded object or dictionary.
type object struct {
	key   string // below the root
	value []byte
}

// decode reads a part and checks every value.
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
			return fmt.Errorf("%w: %s is not an object of %s", ErrDamaged, record.Key, resource)
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

// decodeDictionaries decrypts the dictionaries of a resource. Objects that need an
// unreadable one are unreadable too.
func (t *Target) decodeDictionaries(ctx context.Context, resource schema.GroupResource, dictionaries []Record, p *decoded, skipUnreadable bool) error {
	if t.Encryption == nil {
		return nil
	}
	encryption := t.Encryption(resource)
	for _, record := range dictionaries {
		if found, _ := DictionaryOf(record.Key); found != resource {
			return fmt.Errorf("%w: %s is not a dictionary of %s", ErrDamaged, record.Key, resource)
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

// Dictionaries returns a read-only KV with the dictionaries of a backup, for decoding its
// values. The map is by key below the prefix.
func Dictionaries(prefix string, dictionaries map[string][]byte) clientv3.KV {
	kv := &dictionaryKV{values: map[string][]byte{}}
	for key, content := range dictionaries {
		kv.values[prefix+key] = content
	}
	return kv
}

// dictionaryKV implements only Get.
type dictionaryKV struct {
	clientv3.KV
	values map[string][]byte
}

// Get implements clientv3.KV.
func (d *dictionaryKV) Get(_ context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, options...)
	response := &clientv3.GetResponse{}
	for _, name := range slices.Sorted(maps.Keys(d.values)) {
		if end := string(op.RangeBytes()); name != key && (end == "" || name < key || name >= end) {
			continue
		}
		kv := &mvccpb.KeyValue{Key: []byte(name)}
		if !op.IsKeysOnly() {
			kv.Value = d.values[name]
		}
		response.Kvs = append(response.Kvs, kv)
	}
	response.Count = int64(len(response.Kvs))
	return response, nil
}
