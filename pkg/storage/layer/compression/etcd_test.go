// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

func startEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return etcdtest.Start(t, nil).Client()
}

// replica is the transformer of a resource in one of several replicas.
type replica struct {
	*Manager
	value.Transformer
	resource *resource
	enabled  bool
}

func newReplica(t testing.TB, etcd clientv3.KV, encryption value.Transformer) *replica {
	t.Helper()
	r := &replica{Manager: NewManager(), enabled: true}
	var release func()
	r.Transformer, release = r.Manager.Transformer(Resource{
		GroupResource: widgets, Store: "default", Prefix: "/annex", KV: etcd,
		Encryption: encryption, Enabled: func() bool { return r.enabled },
	})
	t.Cleanup(release)
	r.resource = r.Transformer.(*resource)
	return r
}

// write stores a value as etcd3 does, and returns the stored value.
func (r *replica) write(t testing.TB, etcd clientv3.KV, name string, plain []byte) []byte {
	t.Helper()
	key := "/annex/example.com/widgets/" + name
	stored, err := r.TransformToStorage(t.Context(), plain, value.DefaultContext(key))
	expect.NoError(t, err)
	if etcd != nil {
		_, err = etcd.Put(t.Context(), key, string(stored))
		expect.NoError(t, err)
	}
	return stored
}

// read reads as an update does.
func (r *replica) read(t testing.TB, name string, stored []byte) (plain []byte, stale bool) {
	t.Helper()
	key := "/annex/example.com/widgets/" + name
	plain, stale, err := r.TransformFromStorage(writeinfo.NewContext(t.Context(), &writeinfo.Info{Update: true}), stored, value.DefaultContext(key))
	expect.NoError(t, err)
	return plain, stale
}

// widget returns an object of about 1.2 kB that is similar to others.
func widget(random *rand.Rand) []byte {
	word := func() string {
		letters := make([]byte, 4+random.IntN(6))
		for i := range letters {
			letters[i] = byte('a' + min(random.IntN(26), random.IntN(26)))
		}
		return string(letters)
	}
	wheels := map[string]any{}
	for i := range 12 {
		wheels[fmt.Sprintf("wheelNumber%d", i)] = map[string]any{
			"diameterInCentimetres": random.IntN(100), "material": []string{"rubber", "polyurethane", "cast iron"}[random.IntN(3)], "suspended": i%2 == 0,
		}
	}
	object, err := json.Marshal(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": word(), "namespace": "default", "uid": fmt.Sprintf("%x", random.Uint64())},
		"spec":     map[string]any{"manufacturedBy": word() + " " + word(), "undercarriage": wheels},
	})
	if err != nil {
		panic(err)
	}
	return object
}

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func incompressible(n int) []byte {
	random := newRandom()
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	data[0] = '{'
	return data
}

// fill writes n widgets.
func (r *replica) fill(t testing.TB, etcd clientv3.KV, n int) {
	t.Helper()
	random := newRandom()
	for i := range n {
		r.write(t, etcd, fmt.Sprintf("w%d", i), widget(random))
	}
}

func (r *replica) trainNow(t testing.TB) {
	t.Helper()
	expect.NoError(t, r.resource.trainIfDue(t.Context()))
}

func (r *replica) followNow(t testing.TB) {
	t.Helper()
	expect.NoError(t, followStore(t.Context(), []*resource{r.resource}))
}

// dictionaryIn returns the dictionary ID of a stored value.
func dictionaryIn(t testing.TB, stored []byte) uint32 {
	t.Helper()
	h, err := parse(stored)
	expect.NoError(t, err)
	return h.dictionary
}
