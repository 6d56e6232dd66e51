// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

func TestTraining(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	first, second := newReplica(t, etcd, nil), newReplica(t, etcd, nil)
	object := widget(newRandom())

	first.trainNow(t)
	if n := len(first.resource.dictionaries.known()); n != 0 {
		t.Fatalf("there are %d dictionaries before there is anything to learn", n)
	}
	before := first.write(t, etcd, "before", object)
	if id := dictionaryIn(t, before); id != genericID1 {
		t.Fatalf("without training it is written with dictionary %d", id)
	}
	second.write(t, nil, "looks what there is", object)

	first.fill(t, etcd, 200)
	first.trainNow(t)
	after := first.write(t, etcd, "after", object)
	id := dictionaryIn(t, after)
	if generic(id) != nil {
		t.Fatal("nothing was learned")
	}
	if len(after)*3 > len(before)*2 {
		t.Errorf("an object takes %d bytes with a dictionary of its own and %d without, of %d", len(after), len(before), len(object))
	}
	plain, stale := first.read(t, "before", before)
	if !stale || !bytes.Equal(plain, object) {
		t.Errorf("what was written before is stale: %t, and the same: %t", stale, bytes.Equal(plain, object))
	}
	if _, stale := first.read(t, "after", after); stale {
		t.Error("what was just written is stale")
	}

	// A replica that reads it uses it too, at once: else the two would write each
	// other's values anew.
	plain, stale = second.read(t, "after", after)
	if stale || !bytes.Equal(plain, object) {
		t.Errorf("at another replica it is stale: %t, and the same: %t", stale, bytes.Equal(plain, object))
	}
	if got := dictionaryIn(t, second.write(t, nil, "w", object)); got != id {
		t.Errorf("another replica writes with %d", got)
	}
	third := newReplica(t, etcd, nil)
	if got := dictionaryIn(t, third.write(t, nil, "w", object)); got != id {
		t.Errorf("a replica that starts writes with %d", got)
	}

	// Nothing new, nothing to learn.
	first.resource.training = training{}
	first.trainNow(t)
	if n := len(first.resource.dictionaries.known()); n != 1 {
		t.Errorf("there are %d dictionaries", n)
	}
	if !first.resource.training.due(1<<40) || first.resource.training.due(first.resource.writes.Load()) {
		t.Error("the next attempt is not put off")
	}
}

// decrypting reads what was encrypted, and encrypts no more.
type decrypting struct{ *keyed }

func (decrypting) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return data, nil
}

// TestNothingIsLearnedOfSecrets has enough objects of which no dictionary may have pieces.
func TestNothingIsLearnedOfSecrets(t *testing.T) {
	t.Parallel()
	encryption := &keyed{keys: []string{"one"}}
	for name, test := range map[string]struct {
		resource schema.GroupResource
		// before is how the objects in etcd were written, now how others are.
		before, now value.Transformer
		learned     int64
	}{
		"widgets":               {widgets, nil, nil, 1},
		"secrets":               {schema.GroupResource{Resource: "secrets"}, nil, nil, 0},
		"encrypted":             {widgets, encryption, encryption, 0},
		"encrypted from now on": {widgets, nil, encryption, 0},
		"encrypted until now":   {widgets, encryption, decrypting{encryption}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd, manager := startEtcd(t), NewManager()
			of := Resource{GroupResource: test.resource, Store: "default", Prefix: "/annex", KV: etcd, Wanted: func() bool { return true }}
			of.Encryption = test.before
			before, release := NewManager().Transformer(of)
			defer release()
			of.Encryption = test.now
			now, release := manager.Transformer(of)
			defer release()
			random := newRandom()
			for i := range 2 * firstObjects {
				key := fmt.Sprintf("%sdefault/w%d", keys.Objects("/annex", test.resource), i)
				stored, err := before.TransformToStorage(t.Context(), widget(random), value.DefaultContext(key))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := etcd.Put(t.Context(), key, string(stored)); err != nil {
					t.Fatal(err)
				}
				if _, err := now.TransformToStorage(t.Context(), widget(random), value.DefaultContext(key)); err != nil {
					t.Fatal(err)
				}
			}
			manager.Train(t.Context())
			found, err := etcd.Get(t.Context(), keys.AllDictionaries("/annex"), clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			if found.Count != test.learned {
				t.Errorf("there are %d dictionaries, want %d", found.Count, test.learned)
			}
		})
	}
}

// TestFollow is of replicas that only write.
func TestFollow(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	trains, follows := newReplica(t, etcd, nil), newReplica(t, etcd, nil)
	object := widget(newRandom())
	follows.write(t, nil, "w", object)
	trains.fill(t, etcd, 100)
	trains.trainNow(t)
	want := dictionaryIn(t, trains.write(t, nil, "w", object))
	if got := dictionaryIn(t, follows.write(t, nil, "w", object)); got != genericID1 {
		t.Fatalf("it writes with %d without having been told", got)
	}
	if _, err := etcd.Put(t.Context(), keys.Dictionaries("/annex", widgets)+"README", "no dictionary"); err != nil {
		t.Fatal(err)
	}
	follows.followNow(t)
	if got := dictionaryIn(t, follows.write(t, nil, "w", object)); got != want {
		t.Errorf("it writes with %d, want %d", got, want)
	}
}

// TestPutBack has somebody delete a dictionary while annex runs.
func TestPutBack(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	r := newReplica(t, etcd, nil)
	r.fill(t, etcd, 100)
	r.trainNow(t)
	object := widget(newRandom())
	stored := r.write(t, nil, "w", object)
	if dictionaryIn(t, stored) == genericID1 {
		t.Fatal("there is no dictionary")
	}
	if _, err := etcd.Delete(t.Context(), keys.Dictionaries("/annex", widgets), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	r.followNow(t)
	if got := dictionaryIn(t, r.write(t, nil, "w", object)); got != dictionaryIn(t, stored) {
		t.Errorf("it writes with %d then", got)
	}
	if plain, stale := newReplica(t, etcd, nil).read(t, "w", stored); !bytes.Equal(plain, object) || stale {
		t.Errorf("another replica reads %q (stale: %t)", plain, stale)
	}
}

// TestTwoTrainAtOnce: the second finds the first's.
func TestTwoTrainAtOnce(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	first, second := newReplica(t, etcd, nil), newReplica(t, etcd, nil)
	object := widget(newRandom())
	first.write(t, nil, "w", object)
	second.write(t, nil, "w", object)
	known := second.resource.dictionaries.known()
	first.fill(t, etcd, 100)
	first.trainNow(t)
	err := second.resource.dictionaries.add(t.Context(), trained([]byte("a dictionary that comes too late")), known)
	if !errors.Is(err, errLost) {
		t.Errorf("got %v", err)
	}
	if a, b := dictionaryIn(t, first.write(t, nil, "w", object)), dictionaryIn(t, second.write(t, nil, "w", object)); a != b {
		t.Errorf("they write with %d and %d", a, b)
	}
}

func TestMissingDictionary(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	r := newReplica(t, etcd, nil)
	r.fill(t, etcd, 100)
	r.trainNow(t)
	object := widget(newRandom())
	stored := r.write(t, etcd, "w", object)
	id := dictionaryIn(t, stored)
	key := keys.Dictionary("/annex", widgets, dictionaryName(id))
	content, err := etcd.Get(t.Context(), key)
	if err != nil || len(content.Kvs) != 1 {
		t.Fatalf("%s: %v", key, err)
	}

	replace := func(value string) error {
		t.Helper()
		if value == "" {
			_, err = etcd.Delete(t.Context(), key)
		} else {
			_, err = etcd.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = newReplica(t, etcd, nil).TransformFromStorage(t.Context(), stored, value0("/annex/w"))
		return err
	}
	err = replace("")
	wantError(t, err, "read /annex/w", "dictionary "+dictionaryName(id), key)
	var missing *MissingDictionaryError
	if !errors.As(err, &missing) || missing.ID != id || missing.Key != key {
		t.Errorf("got %#v", missing)
	}
	wantError(t, replace("damaged"), "read /annex/w", key, "its content is that of dictionary")
	if err := replace(string(content.Kvs[0].Value)); err != nil {
		t.Errorf("with the dictionary back: %v", err)
	}

	if _, err := Decode(stored, func(uint32) ([]byte, error) { return []byte("another"), nil }); err == nil {
		t.Error("it is decoded with any dictionary")
	}
	decoded, err := Decode(stored, func(asked uint32) ([]byte, error) {
		if got, ok := DictionaryID(stored); !ok || asked != got {
			t.Errorf("asked for %d, DictionaryID says %d", asked, got)
		}
		return content.Kvs[0].Value, nil
	})
	if err != nil || !bytes.Equal(decoded, object) {
		t.Errorf("decode: %v", err)
	}
}

func value0(key string) value.Context { return value.DefaultContext(key) }

// keyed encrypts, as upstream's transformers do as far as this package can tell:
// with the first of several keys, reading with any, bound to the key in etcd.
type keyed struct{ keys []string }

func (k *keyed) TransformToStorage(_ context.Context, data []byte, of value.Context) ([]byte, error) {
	return append([]byte("k8s:enc:"+k.keys[0]+":"+string(of.AuthenticatedData())+":"), flip(data)...), nil
}

func (k *keyed) TransformFromStorage(_ context.Context, data []byte, of value.Context) ([]byte, bool, error) {
	if !bytes.HasPrefix(data, []byte("k8s:enc:")) {
		return data, true, nil
	}
	for i, key := range k.keys {
		if rest, found := bytes.CutPrefix(data, []byte("k8s:enc:"+key+":"+string(of.AuthenticatedData())+":")); found {
			return flip(rest), i > 0, nil
		}
	}
	return nil, false, errors.New("no matching key was found")
}

func flip(data []byte) []byte {
	flipped := bytes.Clone(data)
	for i := range flipped {
		flipped[i] ^= 0xff
	}
	return flipped
}

// TestEncryption: dictionaries are made of pieces of objects, so that what holds for
// objects holds for them, also when encryption begins, changes its key, or ends.
func TestEncryption(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	plainReplica := newReplica(t, etcd, nil)
	plainReplica.fill(t, etcd, 100)
	plainReplica.trainNow(t)
	object := widget(newRandom())
	stored := plainReplica.write(t, etcd, "w", object)
	key := keys.Dictionary("/annex", widgets, dictionaryName(dictionaryIn(t, stored)))

	inEtcd := func() string {
		t.Helper()
		got, err := etcd.Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%s: %v", key, err)
		}
		return string(got.Kvs[0].Value)
	}
	content := inEtcd()
	if !strings.Contains(content, "diameterInCentimetres") {
		t.Fatal("the dictionary is not plain")
	}
	encryption := &keyed{keys: []string{"one"}}
	r := newReplica(t, etcd, encryption)
	if plain, stale := r.read(t, "w", stored); !stale || !bytes.Equal(plain, object) {
		t.Errorf("what was written before is stale: %t, and the same: %t", stale, bytes.Equal(plain, object))
	}
	for _, step := range []struct {
		what, want string
		keys       []string
	}{
		{"switched on", "k8s:enc:one:" + key + ":", []string{"one"}},
		{"a key added", "k8s:enc:one:", []string{"one", "two"}},
		{"the other key first", "k8s:enc:two:", []string{"two", "one"}},
		{"the old key gone", "k8s:enc:two:", []string{"two"}},
	} {
		encryption.keys = step.keys
		r.followNow(t)
		if got := inEtcd(); !strings.HasPrefix(got, step.want) || strings.Contains(got, "diameter") {
			t.Errorf("%s: the dictionary begins with %.60q", step.what, got)
		}
		fresh := newReplica(t, etcd, &keyed{keys: step.keys})
		after := fresh.write(t, nil, "w", object)
		if !bytes.HasPrefix(after, []byte("k8s:enc:"+step.keys[0])) || len(after) > len(object)/3 {
			t.Errorf("%s: an object of %d bytes takes %d: %.60q", step.what, len(object), len(after), after)
		}
		if plain, stale := fresh.read(t, "w", after); stale || !bytes.Equal(plain, object) {
			t.Errorf("%s: it is stale: %t, and the same: %t", step.what, stale, bytes.Equal(plain, object))
		}
	}
	revision := func() int64 {
		got, err := etcd.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return got.Kvs[0].ModRevision
	}
	before := revision()
	r.followNow(t)
	if after := revision(); after != before {
		t.Error("a dictionary is written though nothing changed")
	}

	encryption.keys = []string{"three"}
	_, err := newTestTransformerError(t, etcd, encryption, stored)
	wantError(t, err, "no matching key was found", key)
}

// newTestTransformerError reads a plain value whose dictionary nobody can decrypt.
func newTestTransformerError(t *testing.T, etcd clientv3.KV, encryption value.Transformer, stored []byte) ([]byte, error) {
	t.Helper()
	plain, _, err := newReplica(t, etcd, encryption).TransformFromStorage(t.Context(), stored, value0("/annex/w"))
	return plain, err
}

// TestBounded: no resource gets ever more dictionaries.
func TestBounded(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	r := newReplica(t, etcd, nil)
	r.write(t, nil, "w", widget(newRandom()))
	for i := range maxDictionaries {
		d := trained(bytes.Repeat([]byte{byte(i)}, 5000))
		if err := r.resource.dictionaries.add(t.Context(), d, r.resource.dictionaries.known()); err != nil {
			t.Fatal(err)
		}
	}
	r.fill(t, etcd, 200)
	r.trainNow(t)
	if n := len(r.resource.dictionaries.known()); n != maxDictionaries {
		t.Errorf("there are %d dictionaries", n)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	m := NewManager()
	of := Resource{GroupResource: widgets, Store: "default", Prefix: "/annex", Wanted: func() bool { return true }}
	first, releaseFirst := m.Transformer(of)
	second, releaseSecond := m.Transformer(of)
	if first != second {
		t.Error("the versions of a resource have dictionaries of their own")
	}
	releaseFirst()
	releaseFirst()
	if len(m.all()) != 1 {
		t.Error("it is forgotten while it is used")
	}
	releaseSecond()
	if len(m.all()) != 0 {
		t.Error("it is never forgotten")
	}
}
