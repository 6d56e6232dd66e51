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

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTraining(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	first, second := newReplica(t, etcd, nil), newReplica(t, etcd, nil)
	object := widget(newRandom())

	first.trainNow(t)
	if n := len(first.resource.dictionaries.known()); n != 0 {
		t.Fatalf("%d dictionaries without objects", n)
	}
	before := first.write(t, etcd, "before", object)
	if id := dictionaryIn(t, before); id != genericID1 {
		t.Fatalf("written with dictionary %d before training", id)
	}
	second.write(t, nil, "lists", object)

	first.fill(t, etcd, 200)
	first.trainNow(t)
	after := first.write(t, etcd, "after", object)
	id := dictionaryIn(t, after)
	if generic(id) != nil {
		t.Fatal("no dictionary was trained")
	}
	if len(after)*3 > len(before)*2 {
		t.Errorf("%d bytes with a trained dictionary, %d with the generic one, of %d", len(after), len(before), len(object))
	}
	plain, stale := first.read(t, "before", before)
	if !stale || !bytes.Equal(plain, object) {
		t.Errorf("written before: stale %t, equal %t", stale, bytes.Equal(plain, object))
	}
	if _, stale := first.read(t, "after", after); stale {
		t.Error("a new value is stale")
	}

	// A replica that reads the dictionary uses it at once. Otherwise each replica would
	// rewrite the values of the other.
	plain, stale = second.read(t, "after", after)
	if stale || !bytes.Equal(plain, object) {
		t.Errorf("at another replica: stale %t, equal %t", stale, bytes.Equal(plain, object))
	}
	if got := dictionaryIn(t, second.write(t, nil, "w", object)); got != id {
		t.Errorf("another replica writes with %d", got)
	}
	third := newReplica(t, etcd, nil)
	if got := dictionaryIn(t, third.write(t, nil, "w", object)); got != id {
		t.Errorf("a new replica writes with %d", got)
	}

	// A second attempt gains nothing.
	first.resource.training = training{}
	first.trainNow(t)
	if n := len(first.resource.dictionaries.known()); n != 1 {
		t.Errorf("there are %d dictionaries", n)
	}
	if !first.resource.training.due(1<<40) || first.resource.training.due(first.resource.writes.Load()) {
		t.Error("the next attempt is not delayed")
	}
}

// decrypting reads encrypted values and writes plain ones.
type decrypting struct{ *keyed }

func (decrypting) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return data, nil
}

func TestSecretsAreNotTrained(t *testing.T) {
	t.Parallel()
	encryption := &keyed{keys: []string{"one"}}
	for name, test := range map[string]struct {
		resource schema.GroupResource
		// before encrypted the objects in etcd.
		before, now value.Transformer
		want        int64
	}{
		"widgets":             {widgets, nil, nil, 1},
		"secrets":             {schema.GroupResource{Resource: "secrets"}, nil, nil, 0},
		"encrypted":           {widgets, encryption, encryption, 0},
		"encryption enabled":  {widgets, nil, encryption, 0},
		"encryption disabled": {widgets, encryption, decrypting{encryption}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd, manager := startEtcd(t), NewManager()
			of := Resource{GroupResource: test.resource, Store: "default", Prefix: "/annex", KV: etcd, Enabled: func() bool { return true }}
			of.Encryption = test.before
			before, release := NewManager().Transformer(of)
			defer release()
			of.Encryption = test.now
			now, release := manager.Transformer(of)
			defer release()
			random := newRandom()
			for i := range 2 * firstObjects {
				key := fmt.Sprintf("%snamespace-%d/w%d", keys.Objects("/annex", test.resource), i%2, i)
				stored, err := before.TransformToStorage(t.Context(), widget(random), value.DefaultContext(key))
				expect.NoError(t, err)
				_, err = etcd.Put(t.Context(), key, string(stored))
				expect.NoError(t, err)
				_, err = now.TransformToStorage(t.Context(), widget(random), value.DefaultContext(key))
				expect.NoError(t, err)
			}
			manager.Train(t.Context())
			found, err := etcd.Get(t.Context(), keys.AllDictionaries("/annex"), clientv3.WithPrefix(), clientv3.WithCountOnly())
			expect.NoError(t, err)
			if found.Count != test.want {
				t.Errorf("there are %d dictionaries, want %d", found.Count, test.want)
			}
		})
	}
}

// TestFollow: a replica that only writes uses the dictionary of another.
func TestFollow(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	trainer, follower := newReplica(t, etcd, nil), newReplica(t, etcd, nil)
	object := widget(newRandom())
	follower.write(t, nil, "w", object)
	trainer.fill(t, etcd, 100)
	trainer.trainNow(t)
	want := dictionaryIn(t, trainer.write(t, nil, "w", object))
	if got := dictionaryIn(t, follower.write(t, nil, "w", object)); got != genericID1 {
		t.Fatalf("written with %d before following", got)
	}
	_, err := etcd.Put(t.Context(), keys.Dictionaries("/annex", widgets)+"README", "no dictionary")
	expect.NoError(t, err)
	follower.followNow(t)
	if got := dictionaryIn(t, follower.write(t, nil, "w", object)); got != want {
		t.Errorf("written with %d, want %d", got, want)
	}
}

// TestRestore deletes a dictionary while annex runs.
func TestRestore(t *testing.T) {
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
	_, err := etcd.Delete(t.Context(), keys.Dictionaries("/annex", widgets), clientv3.WithPrefix())
	expect.NoError(t, err)
	r.followNow(t)
	if got := dictionaryIn(t, r.write(t, nil, "w", object)); got != dictionaryIn(t, stored) {
		t.Errorf("written with %d", got)
	}
	if plain, stale := newReplica(t, etcd, nil).read(t, "w", stored); !bytes.Equal(plain, object) || stale {
		t.Errorf("another replica reads %q (stale: %t)", plain, stale)
	}
}

func TestConcurrentTraining(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	first, second := newReplica(t, etcd, nil), newReplica(t, etcd, nil)
	object := widget(newRandom())
	first.write(t, nil, "w", object)
	second.write(t, nil, "w", object)
	known := second.resource.dictionaries.known()
	first.fill(t, etcd, 100)
	first.trainNow(t)
	err := second.resource.dictionaries.add(t.Context(), trained([]byte("a second dictionary")), known)
	if !errors.Is(err, errExists) {
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

	replace := func(replacement string) error {
		t.Helper()
		if replacement == "" {
			_, err = etcd.Delete(t.Context(), key)
		} else {
			_, err = etcd.Put(t.Context(), key, replacement)
		}
		expect.NoError(t, err)
		_, _, err = newReplica(t, etcd, nil).TransformFromStorage(t.Context(), stored, value.DefaultContext("/annex/w"))
		return err
	}
	err = replace("")
	expect.Error(t, err, "read /annex/w", "dictionary "+dictionaryName(id), key)
	var missing *MissingDictionaryError
	if !errors.As(err, &missing) || missing.ID != id || missing.Key != key {
		t.Errorf("got %#v", missing)
	}
	expect.Error(t, replace("damaged"), "read /annex/w", key, "its content is that of dictionary")
	if err := replace(string(content.Kvs[0].Value)); err != nil {
		t.Errorf("with the restored dictionary: %v", err)
	}

	if _, err := Decode(stored, func(uint32) ([]byte, error) { return []byte("another"), nil }); err == nil {
		t.Error("decoded with a wrong dictionary")
	}
	decoded, err := Decode(stored, func(asked uint32) ([]byte, error) {
		if got, ok := DictionaryID(stored); !ok || asked != got {
			t.Errorf("asked for %d, DictionaryID returned %d", asked, got)
		}
		return content.Kvs[0].Value, nil
	})
	if err != nil || !bytes.Equal(decoded, object) {
		t.Errorf("decode: %v", err)
	}
}

// keyed is like upstream's transformers: it encrypts with the first of several keys,
// decrypts with any, and binds values to their key in etcd.
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

// TestEncryption: dictionaries are encrypted like objects, also when encryption is enabled
// or disabled, or its key changes.
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
		t.Errorf("written before: stale %t, equal %t", stale, bytes.Equal(plain, object))
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
			t.Errorf("%s: stale %t, equal %t", step.what, stale, bytes.Equal(plain, object))
		}
	}
	revision := func() int64 {
		got, err := etcd.Get(t.Context(), key)
		expect.NoError(t, err)
		return got.Kvs[0].ModRevision
	}
	before := revision()
	r.followNow(t)
	if after := revision(); after != before {
		t.Error("a dictionary was written without a change")
	}

	encryption.keys = []string{"three"}
	_, err := newTestTransformerError(t, etcd, encryption, stored)
	expect.Error(t, err, "no matching key was found", key)
}

// newTestTransformerError reads a plain value whose dictionary cannot be decrypted.
func newTestTransformerError(t *testing.T, etcd clientv3.KV, encryption value.Transformer, stored []byte) ([]byte, error) {
	t.Helper()
	plain, _, err := newReplica(t, etcd, encryption).TransformFromStorage(t.Context(), stored, value.DefaultContext("/annex/w"))
	return plain, err
}

func TestMaxDictionaries(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	r := newReplica(t, etcd, nil)
	r.write(t, nil, "w", widget(newRandom()))
	for i := range maxDictionaries {
		d := trained(bytes.Repeat([]byte{byte(i)}, 5000))
		expect.NoError(t, r.resource.dictionaries.add(t.Context(), d, r.resource.dictionaries.known()))
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
	of := Resource{GroupResource: widgets, Store: "default", Prefix: "/annex", Enabled: func() bool { return true }}
	first, releaseFirst := m.Transformer(of)
	second, releaseSecond := m.Transformer(of)
	if first != second {
		t.Error("the versions of a resource do not share dictionaries")
	}
	releaseFirst()
	releaseFirst()
	if len(m.resources) != 1 {
		t.Error("removed while in use")
	}
	releaseSecond()
	if len(m.resources) != 0 {
		t.Error("not removed")
	}
}

// failing is an etcd whose reads fail while it is broken.
type failing struct {
	clientv3.KV
	broken bool
}

func (f *failing) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if f.broken {
		return nil, errors.New("out of order")
	}
	return f.KV.Get(ctx, key, opts...)
}

// TestTrainingAfterAnError: the objects may have had all their writes when etcd responds again.
func TestTrainingAfterAnError(t *testing.T) {
	t.Parallel()
	etcd := &failing{KV: startEtcd(t)}
	r := newReplica(t, etcd, nil)
	r.fill(t, etcd, 2*firstObjects)
	etcd.broken = true
	r.Train(t.Context())
	etcd.broken = false
	r.Train(t.Context())
	if got := len(r.resource.dictionaries.known()); got != 1 {
		t.Errorf("there are %d dictionaries, want 1", got)
	}
}

func TestWhenToTrain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writes, objects int64
		improved        bool
		next            int64
	}{
		"one object too few":         {64, 63, false, 65},
		"few objects":                {64, 4, false, 124},
		"enough objects":             {64, 64, true, 1064},
		"many objects":               {5000, 4000, true, 9000},
		"many objects, not improved": {5000, 4000, false, 13000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var training training
			training.tried(test.writes, test.objects, test.improved)
			if training.due(test.next-1) || !training.due(test.next) {
				t.Errorf("due at %d writes, want %d", training.next, test.next)
			}
		})
	}
}
